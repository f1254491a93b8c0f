//! `tenure-sim`: one seed with its timeline, many seeds for a time, or the planted bugs.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use tenure::{BootClock, Clock};
use tenure_sim::planted::{self, PLANTED, Planted};
use tenure_sim::profile::{self, NARROW, PROFILES, Profile};
use tenure_sim::soak::{Limits, Soak, profile_of};
use tenure_sim::{Trace, run};

/// Runs tenure's election on simulated clocks, networks, processes and stores.
#[derive(Parser)]
#[command(name = "tenure-sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one seed and prints its timeline.
    Run {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// The profile; left out: the one that the soak takes for this seed.
        #[arg(long, value_parser = profile_named)]
        profile: Option<&'static Profile>,
        /// A bug to plant: see `tenure-sim list`.
        #[arg(long)]
        bug: Option<String>,
        /// Print only the hash of the timeline.
        #[arg(long)]
        hash: bool,
    },
    /// Runs seed after seed on all cores.
    Soak {
        /// For how long.
        #[arg(long, default_value_t = 1.0)]
        minutes: f64,
        /// At most this many seeds.
        #[arg(long, default_value_t = u64::MAX / 2)]
        seeds: u64,
        /// The first seed; left out: chosen by the clock.
        #[arg(long)]
        from_seed: Option<u64>,
        /// Only this profile.
        #[arg(long, value_parser = profile_named)]
        profile: Option<&'static Profile>,
        /// How many threads; left out: all cores.
        #[arg(long)]
        cores: Option<usize>,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Looks for a seed that brings out a planted bug, or makes a checker complain.
    Hunt {
        /// The bug: see `tenure-sim list`.
        bug: Option<String>,
        /// The checker that has to complain; left out: the one named for the bug.
        #[arg(long)]
        checker: Option<String>,
        /// The profile; left out: the one named for the bug.
        #[arg(long, value_parser = profile_named)]
        profile: Option<&'static Profile>,
        /// At most this many seeds.
        #[arg(long, default_value_t = 20_000)]
        seeds: u64,
    },
    /// Lists profiles and planted bugs.
    List,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn profile_named(name: &str) -> Result<&'static Profile, String> {
    profile::find(name).ok_or_else(|| "no such profile: see `tenure-sim list`".into())
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing more can be said if this cannot.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    match arguments.command {
        Command::Run {
            seed,
            profile,
            bug,
            hash,
        } => run_one(seed, profile, bug, hash),
        Command::Soak {
            minutes,
            seeds,
            from_seed,
            profile,
            cores,
            format,
        } => {
            let all = std::thread::available_parallelism().map_or(1, usize::from);
            let limits = Limits {
                from_seed: from_seed.unwrap_or_else(|| BootClock.now().as_nanos() >> 10),
                seeds,
                time: Duration::from_secs_f64(minutes.max(0.0) * 60.0),
                cores: cores.unwrap_or(all).max(1),
                profile,
            };
            soak(limits, format)
        }
        Command::Hunt {
            bug,
            checker,
            profile,
            seeds,
        } => hunt(bug, checker, profile, seeds),
        Command::List => list(),
    }
}

fn out(text: &str) {
    // Whoever closes our output early wants no more of it.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn planted_named(name: Option<String>) -> Result<Option<&'static Planted>, ExitCode> {
    let Some(name) = name else { return Ok(None) };
    planted::find(&name).map(Some).ok_or_else(|| {
        eprintln!("tenure-sim: there is no planted bug \"{name}\": see `tenure-sim list`");
        ExitCode::from(64)
    })
}

fn run_one(
    seed: u64,
    profile: Option<&'static Profile>,
    bug: Option<String>,
    hash: bool,
) -> ExitCode {
    let planted = match planted_named(bug) {
        Ok(planted) => planted,
        Err(code) => return code,
    };
    let narrow = planted.and_then(|planted| profile::find(planted.profile));
    let profile = profile.or(narrow).unwrap_or_else(|| profile_of(seed));
    let trace = if hash { Trace::Hash } else { Trace::Full };
    let report = run(seed, profile, planted.map(|planted| planted.bug), trace);
    if hash {
        out(&format!("{:016x}", report.hash));
    } else {
        out(&report.to_string());
    }
    ExitCode::from(u8::from(!report.violations.is_empty()))
}

fn soak(limits: Limits, format: Format) -> ExitCode {
    let soak = Soak::new();
    std::thread::scope(|scope| {
        scope.spawn(|| show_progress(&soak));
        soak.run(limits);
    });
    let failures = soak.failures();
    for report in &failures {
        for violation in &report.violations {
            eprintln!(
                "seed {}: {}: {}",
                report.seed, violation.checker, violation.text
            );
        }
        eprintln!("  again: {}", report.command());
    }
    match format {
        Format::Text => out(&progress(&soak)),
        Format::Json => out(&serde_json::json!({
            "simulated_years": soak.simulated_years(),
            "faults": soak.faults(),
            "violations": soak.violations(),
            "seeds": soak.seeds(),
        })
        .to_string()),
    }
    ExitCode::from(u8::from(!failures.is_empty()))
}

fn progress(soak: &Soak) -> String {
    format!(
        "{:.2} simulated years, {} seeds, {} faults, {} tenures, {} writes turned away by the fence, {} violations",
        soak.simulated_years(),
        soak.seeds(),
        soak.faults(),
        soak.tenures(),
        soak.turned_away(),
        soak.violations(),
    )
}

fn show_progress(soak: &Soak) {
    let terminal = std::io::stderr().is_terminal();
    let every = Duration::from_millis(if terminal { 200 } else { 10_000 });
    let mut last = BootClock.now();
    while !soak.is_done() {
        std::thread::sleep(Duration::from_millis(50));
        if BootClock.now() - last >= every {
            last = BootClock.now();
            if terminal {
                eprint!("\r\x1b[K{}", progress(soak));
            } else {
                eprintln!("{}", progress(soak));
            }
        }
    }
    if terminal {
        eprint!("\r\x1b[K");
    }
}

fn hunt(
    bug: Option<String>,
    checker: Option<String>,
    profile: Option<&'static Profile>,
    seeds: u64,
) -> ExitCode {
    let planted = match planted_named(bug) {
        Ok(planted) => planted,
        Err(code) => return code,
    };
    let named = planted.map(|planted| planted.caught_by.to_owned());
    let narrow = planted.and_then(|planted| profile::find(planted.profile));
    let (Some(checker), Some(profile)) = (checker.or(named), profile.or(narrow)) else {
        eprintln!("tenure-sim: name a planted bug, or a checker and a profile");
        return ExitCode::from(64);
    };
    for seed in 0..seeds {
        let report = run(
            seed,
            profile,
            planted.map(|planted| planted.bug),
            Trace::Off,
        );
        if report.caught_by(&checker) {
            out(&report.to_string());
            return ExitCode::SUCCESS;
        }
    }
    eprintln!("{checker} saw nothing in {seeds} seeds");
    ExitCode::FAILURE
}

fn list() -> ExitCode {
    out("profiles:");
    for profile in PROFILES.iter().chain(NARROW) {
        out(&format!("  {:<18} {}", profile.name, profile.about));
    }
    out("\nplanted bugs:");
    for planted in PLANTED {
        out(&format!("  {:<32} {}", planted.name, planted.breaks));
    }
    ExitCode::SUCCESS
}
