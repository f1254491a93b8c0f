//! The command line: what can be said, and examples that teach it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::help;

/// One of you, at a time, with proof.
///
/// Leases and leader election on the store that you already run. With no store given,
/// leases live in a file of yours, for all processes of this machine.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, after_help = help::TENURE, arg_required_else_help = false)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// Options of every subcommand.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every subcommand.
#[derive(Debug, Args, Default)]
pub struct Global {
    /// Where leases live: sqlite:PATH, postgres://…, redis://…, etcd://…, memory:; default a
    /// file in your state folder
    #[arg(
        long,
        value_name = "URL",
        env = "TENURE_STORE",
        global = true,
        help_heading = "Global options"
    )]
    #[arg(hide_env_values = true)]
    pub store: Option<String>,
    /// A TOML file with values for any of these flags; flags and environment win over it
    #[arg(
        long,
        value_name = "FILE",
        env = "TENURE_CONFIG",
        global = true,
        help_heading = "Global options"
    )]
    pub config: Option<PathBuf>,
    /// Say more on stderr; twice for even more
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = "Global options")]
    pub verbose: u8,
    /// How log lines look
    #[arg(
        long,
        value_name = "FORMAT",
        env = "TENURE_LOG_FORMAT",
        global = true,
        help_heading = "Global options"
    )]
    pub log_format: Option<LogFormat>,
}

/// How log lines on stderr look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// How results on stdout look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// How `acquire` prints the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeaseFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For `eval` in a shell: TENURE_KEY, TENURE_HOLDER, TENURE_TOKEN, TENURE_TTL_MS.
    Env,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while holding a lease
    #[command(after_help = help::RUN)]
    Run(RunArgs),
    /// Show who holds a key, or all keys
    #[command(after_help = help::STATUS)]
    Status(StatusArgs),
    /// List the leases, or those whose keys begin with a prefix
    #[command(after_help = help::LIST)]
    List(ListArgs),
    /// Print each change of a key, or of all keys, as it happens
    #[command(after_help = help::WATCH)]
    Watch(WatchArgs),
    /// Take a lease and print its token, for scripts that keep it themselves
    #[command(after_help = help::ACQUIRE)]
    Acquire(AcquireArgs),
    /// Begin the term of a lease anew
    #[command(after_help = help::RENEW)]
    Renew(RenewArgs),
    /// Free a lease
    #[command(after_help = help::RELEASE)]
    Release(ReleaseArgs),
    /// Ask the present holder of a key to resign
    #[command(after_help = help::STEP_DOWN)]
    StepDown(StepDownArgs),
    /// Show what a timing means: the sum, the deadlines, the worst-case failover
    #[command(after_help = help::EXPLAIN)]
    Explain(ExplainArgs),
    /// Print what has to be created in the store before its first use, with least rights
    #[command(after_help = help::SCHEMA)]
    Schema,
    /// Create in the store what `tenure schema` prints, if it is not there
    #[command(after_help = help::INIT)]
    Init,
    /// Watch five contenders elect a leader while it is killed again and again
    #[command(after_help = help::DEMO)]
    Demo(DemoArgs),
    /// Print completions for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the man page
    #[command(after_help = help::MAN)]
    Man,
}

/// The timing of a lease.
#[derive(Clone, Debug, Args, Default)]
pub struct TimingArgs {
    /// How long a lease lasts after its last renewal [default: 30s]
    #[arg(long, value_name = "TIME", env = "TENURE_TTL", value_parser = duration, help_heading = "Timing")]
    pub ttl: Option<Duration>,
    /// The profile for fast failover: a ttl of 10s
    #[arg(long, conflicts_with = "ttl", help_heading = "Timing")]
    pub fast: bool,
    /// How often the leader renews [default: a third of the ttl]
    #[arg(long, value_name = "TIME", env = "TENURE_RENEW_EVERY", value_parser = duration, help_heading = "Timing")]
    pub renew_every: Option<Duration>,
    /// How long one call to the store may take [default: a sixth of the ttl]
    #[arg(long, value_name = "TIME", env = "TENURE_CALL_TIMEOUT", value_parser = duration, help_heading = "Timing")]
    pub call_timeout: Option<Duration>,
    /// How long before its deadline the command is told to stop, with TERM [default: a sixth of the ttl]
    #[arg(long, value_name = "TIME", env = "TENURE_GRACE", value_parser = duration, help_heading = "Timing")]
    pub grace: Option<Duration>,
    /// How often a waiting process asks when nothing is pushed to it [default: a third of the ttl]
    #[arg(long, value_name = "TIME", env = "TENURE_POLL_EVERY", value_parser = duration, help_heading = "Timing")]
    pub poll_every: Option<Duration>,
    /// By which part clocks may run differently [default: 0.01]
    #[arg(
        long,
        value_name = "PART",
        env = "TENURE_DRIFT",
        help_heading = "Timing"
    )]
    pub drift: Option<f64>,
    /// Which part of an interval chance may take away [default: 0.1]
    #[arg(
        long,
        value_name = "PART",
        env = "TENURE_JITTER",
        help_heading = "Timing"
    )]
    pub jitter: Option<f64>,
}

/// `tenure run`.
#[derive(Debug, Args, Default)]
pub struct RunArgs {
    /// What is led, such as billing/nightly
    pub key: String,
    /// The command and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Wait this long for the lease, then leave with 75 [default: for ever]
    #[arg(long, value_name = "TIME", env = "TENURE_WAIT", value_parser = duration, conflicts_with = "no_wait")]
    pub wait: Option<Duration>,
    /// Do not wait: leave with 75 if somebody has the lease
    #[arg(long)]
    pub no_wait: bool,
    /// The exit code if the lease was not acquired, instead of 75
    #[arg(short = 'E', long, value_name = "N", env = "TENURE_CONFLICT_EXIT_CODE")]
    pub conflict_exit_code: Option<u8>,
    /// Campaign and run again whenever the command ends or the lease is lost
    #[arg(long)]
    pub restart: bool,
    /// Keep the lease for at least this long after the start, also if the command ends sooner
    #[arg(long, value_name = "TIME", env = "TENURE_AT_LEAST", value_parser = duration)]
    pub at_least: Option<Duration>,
    /// Who holds; must be unique among live processes [default: host_pid_random]
    #[arg(long, value_name = "NAME")]
    pub holder: Option<String>,
    /// When to renew and when to stop.
    #[command(flatten)]
    pub timing: TimingArgs,
}

/// `tenure status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Which key; all if left out
    pub key: Option<String>,
    /// How the answer looks
    #[arg(long, value_name = "FORMAT", env = "TENURE_FORMAT")]
    pub format: Option<Format>,
}

/// `tenure list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only keys that begin with this
    pub prefix: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", env = "TENURE_LIMIT")]
    pub limit: Option<usize>,
    /// How the answer looks
    #[arg(long, value_name = "FORMAT", env = "TENURE_FORMAT")]
    pub format: Option<Format>,
}

/// `tenure watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Which key; all if left out
    pub key: Option<String>,
    /// How often to look where the store cannot push changes [default: 1s]
    #[arg(long, value_name = "TIME", env = "TENURE_WATCH_EVERY", value_parser = duration)]
    pub every: Option<Duration>,
    /// Leave after this many changes
    #[arg(long, value_name = "N")]
    pub changes: Option<u64>,
    /// How a change looks
    #[arg(long, value_name = "FORMAT", env = "TENURE_FORMAT")]
    pub format: Option<Format>,
}

/// `tenure acquire`.
#[derive(Debug, Args)]
pub struct AcquireArgs {
    /// What is led
    pub key: String,
    /// Wait this long for it [default: do not wait]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
    /// The exit code if the lease was not acquired, instead of 75
    #[arg(short = 'E', long, value_name = "N", env = "TENURE_CONFLICT_EXIT_CODE")]
    pub conflict_exit_code: Option<u8>,
    /// Who holds; must be unique among live processes [default: host_pid_random]
    #[arg(long, value_name = "NAME")]
    pub holder: Option<String>,
    /// How long the lease lasts unless it is renewed [default: 30s]
    #[arg(long, value_name = "TIME", env = "TENURE_TTL", value_parser = duration)]
    pub ttl: Option<Duration>,
    /// How the lease is printed
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<LeaseFormat>,
}

/// Which lease of a key is meant: renew and release name holder and token.
#[derive(Debug, Args)]
pub struct Which {
    /// What is led
    pub key: String,
    /// The holder that acquire printed
    #[arg(long, value_name = "NAME", env = "TENURE_HOLDER")]
    pub holder: String,
    /// The token that acquire printed
    #[arg(long, value_name = "NUMBER", env = "TENURE_TOKEN")]
    pub token: u64,
}

/// `tenure renew`.
#[derive(Debug, Args)]
pub struct RenewArgs {
    /// Which lease.
    #[command(flatten)]
    pub which: Which,
    /// A new length of the term [default: as it was]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub ttl: Option<Duration>,
    /// How the lease is printed
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<LeaseFormat>,
}

/// `tenure release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Which lease.
    #[command(flatten)]
    pub which: Which,
    /// How the answer looks
    #[arg(long, value_name = "FORMAT", env = "TENURE_FORMAT")]
    pub format: Option<Format>,
}

/// `tenure step-down`.
#[derive(Debug, Args)]
pub struct StepDownArgs {
    /// Which key
    pub key: String,
    /// Wait this long until that holder has resigned, then leave with 75
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
    /// How the answer looks
    #[arg(long, value_name = "FORMAT", env = "TENURE_FORMAT")]
    pub format: Option<Format>,
}

/// `tenure explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The timing to explain.
    #[command(flatten)]
    pub timing: TimingArgs,
    /// How the sum looks
    #[arg(long, value_name = "FORMAT", env = "TENURE_FORMAT")]
    pub format: Option<Format>,
}

/// `tenure demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How long it goes on
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "20s")]
    pub length: Duration,
    /// How often the leader is killed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "4s")]
    pub kill_every: Duration,
    /// How many contenders
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=20))]
    pub contenders: u8,
}

/// A duration as people write it: `30s`, `1m 30s`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "write it with a unit, like 30s, 500ms or \"1m 30s\"".to_string())
}

impl Cli {
    /// The command line's definition, for completions and the man page.
    pub fn definition() -> clap::Command {
        <Self as clap::CommandFactory>::command()
    }
}
