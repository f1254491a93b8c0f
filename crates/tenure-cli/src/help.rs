//! The examples at the end of each `--help`, completions and the man page.

use std::io::{self, Write};

use crate::args::Cli;
use crate::exit::Outcome;

pub const TENURE: &str = "\
Examples:
  tenure run nightly -- ./job.sh           run it here unless another process does
  tenure run --restart api -- ./server     one active server, the others stand by
  tenure status nightly                    who has it, since when, with which token
  tenure demo                              see a leader being killed and replaced

Exit codes:
  64 usage · 69 store unreachable · 75 not acquired · 79 lease lost
  tenure run: the command's own; 128+n for a signal; 126/127 not executable/not found

Each subcommand has examples of its own: tenure run --help";

pub const RUN: &str = "\
The command runs in its own process group, without a shell, and gets TENURE_KEY,
TENURE_HOLDER, TENURE_TOKEN and TENURE_TTL_MS. Signals are forwarded to it. If the lease
is lost, the command and all its descendants get TERM, the grace, then KILL, all of it
before another may hold the lease; tenure then leaves with 79. Whatever the command left
running in the background is ended when it ends.

Examples:
  tenure run nightly -- ./job.sh
      wait for the lease, run the job, free the lease
  tenure run --no-wait nightly -- ./job.sh
      for cron on several machines: whoever is second leaves at once with 75
  tenure run --wait 30s -E 0 nightly -- ./job.sh
      wait at most 30 seconds, and call it a success if another one ran
  tenure run --no-wait --at-least 5m nightly -- ./quick.sh
      keep the lease for five minutes, so that a late clock elsewhere does not run it twice
  tenure run --restart --fast api -- ./server --port 80
      a daemon with hot standbys: run again after each end, failover within 13 s
  tenure run report -- sh -c 'psql -v token=$TENURE_TOKEN -f report.sql'
      hand the fencing token to what you protect";

pub const STATUS: &str = "\
Examples:
  tenure status                      all keys
  tenure status billing/nightly      one key
  tenure status nightly --format json | jq -r .holder";

pub const LIST: &str = "\
Examples:
  tenure list                        all leases
  tenure list billing/               those whose keys begin with billing/
  tenure list --format json | jq '.[].key'";

pub const WATCH: &str = "\
Prints who has the key now, then one line for each change, until it is interrupted.

Examples:
  tenure watch nightly
  tenure watch --format json | jq --unbuffered -r '[.key, .event, .holder] | @tsv'
  tenure watch nightly --changes 1   leave after the first change";

pub const ACQUIRE: &str = "\
Nothing renews this lease but you: it ends after its ttl. To have it renewed and the work
stopped in time, use tenure run.

Examples:
  tenure acquire nightly --ttl 10m
  eval \"$(tenure acquire nightly --ttl 10m --format env)\" && ./job.sh && tenure release nightly
  tenure acquire nightly --wait 1m --format json | jq .token";

pub const RENEW: &str = "\
Holder and token are those that acquire printed; TENURE_HOLDER and TENURE_TOKEN will do.
Leaves with 79 if the lease is no longer that holder's.

Examples:
  tenure renew nightly --holder web-1 --token 1790000000000000
  eval \"$(tenure acquire nightly --format env)\"; tenure renew nightly";

pub const RELEASE: &str = "\
Frees the lease if holder and token are the record's, and does nothing otherwise.

Examples:
  tenure release nightly --holder web-1 --token 1790000000000000
  eval \"$(tenure acquire nightly --format env)\"; tenure release nightly";

pub const STEP_DOWN: &str = "\
The request travels through the store and is found at the holder's next renewal. A
tenure run ends its command in its grace and leaves with 79, or campaigns again later
with --restart.

Examples:
  tenure step-down api               ask, and leave
  tenure step-down api --wait 1m     ask, and wait until it has happened";

pub const EXPLAIN: &str = "\
A timing that cannot hold is refused with its sum, and 64.

Examples:
  tenure explain
  tenure explain --ttl 10s --renew-every 2s --grace 3s
  tenure explain --fast --format json | jq .sum.failover_ms_max";

pub const SCHEMA: &str = "\
Changes nothing, and asks no server. What it prints is for whoever may create tables and
users; the rights that it grants are all that tenure needs afterwards.

Examples:
  tenure schema --store postgres://app@db/app | psql postgres://admin@db/app
  tenure schema --store 'postgres://app@db/app?schema=ops&table=leases'
  tenure schema --store etcd://a:2379,b:2379";

pub const INIT: &str = "\
Leaves alone what is there already. The user of the URL has to have the right to create
it; afterwards a user with fewer rights will do: see tenure schema.

Examples:
  tenure init --store postgres://admin@db/app
  TENURE_STORE_PASSWORD_FILE=/run/secrets/db tenure init --store postgres://admin@db/app";

pub const DEMO: &str = "\
Everything lives in a throw-away folder; nothing of it is left afterwards.

Examples:
  tenure demo
  tenure demo --for 1m --kill-every 10s
  tenure demo | cat                  plain lines instead of the picture";

pub const COMPLETIONS: &str = "\
Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions zsh > ~/.zfunc/_tenure
  tenure completions fish > ~/.config/fish/completions/tenure.fish";

pub const MAN: &str = "\
Examples:
  tenure man | man -l -
  tenure man > /usr/local/share/man/man1/tenure.1";

/// `tenure completions SHELL`.
pub fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "tenure", &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}

/// `tenure man`: the page of the command, then those of its subcommands.
pub fn man() -> Outcome {
    let mut page = Vec::new();
    let mut command = Cli::definition();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        writeln!(page, ".SH \"{}\"", subcommand_title(subcommand))?;
        let man = clap_mangen::Man::new(subcommand.clone());
        man.render_description_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_options_section(&mut page)?;
        man.render_extra_section(&mut page)?;
    }
    io::stdout().write_all(&page)?;
    Ok(0)
}

fn subcommand_title(subcommand: &clap::Command) -> String {
    format!("TENURE {}", subcommand.get_name().to_uppercase())
}
