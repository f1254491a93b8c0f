//! The `tenure` command as a library: `main.rs` is one call, and the rest can be tested.

#[cfg(not(target_os = "linux"))]
compile_error!("tenure-cli rests on subreapers, signalfd and /proc, so it needs Linux");

mod args;
mod calls;
mod config;
mod demo;
mod exit;
mod explain;
mod help;
mod logging;
mod output;
mod run;
mod script;
mod setup;
mod status;
mod store;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Command, Global};
use crate::config::Config;
use crate::exit::{Failure, Outcome};
use crate::store::Place;

/// Runs the command with the arguments of this process.
pub fn main() -> ExitCode {
    // Nobody is shown a backtrace: one line, as for every other failure.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("unknown");
        eprintln!(
            "tenure: this is a bug in tenure, please report it: {} ({place})",
            exit::one_line(message)
        );
    }));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // No subcommand for people, so it is in no help and no completion.
        if std::env::args_os()
            .nth(1)
            .is_some_and(|word| word == demo::WORK)
        {
            return demo::work();
        }
        match Cli::try_parse() {
            Ok(cli) => dispatch(cli),
            Err(error) => usage(&error),
        }
    }));
    match outcome {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(failure)) => failure.report(),
        Err(_) => ExitCode::from(exit::INTERNAL),
    }
}

/// Reads the text of a config file as all subcommands together would, and says what is
/// wrong with it.
pub fn check_config(text: &str) -> Result<(), String> {
    let checked = Config::parse(Path::new("config.toml"), text).and_then(|config| config.check());
    checked.map_err(|failure| failure.to_string())
}

/// Help and version go to stdout; a mistake becomes one line.
fn usage(error: &clap::Error) -> Outcome {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print()?;
            return Ok(0);
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(Failure::usage(
                "what shall I do? Try: tenure run KEY -- COMMAND, or tenure --help",
            ));
        }
        _ => {}
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    // clap's usage and its pointer to --help follow; the line ends with our own pointer.
    let said: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"))
        .collect();
    let said = said.join(" ").replace(" tip: ", ": ");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    Err(Failure::usage(format!(
        "{said} (examples: {} --help)",
        invoked()
    )))
}

/// The subcommand that was meant, for the pointer to its help.
fn invoked() -> String {
    let definition = Cli::definition();
    let words = std::env::args().skip(1);
    let known = words
        .take_while(|word| word != "--")
        .find(|word| definition.find_subcommand(word).is_some());
    known.map_or("tenure".into(), |name| format!("tenure {name}"))
}

fn dispatch(mut cli: Cli) -> Outcome {
    // These need no configuration, and the demo brings its own.
    match cli.command {
        Command::Completions { shell } => return help::completions(shell),
        Command::Man => return help::man(),
        Command::Demo(args) => return demo::demo(&args),
        _ => {}
    }
    let config = Config::find(&cli.global)?;
    config.fill_global(&mut cli.global)?;
    match cli.command {
        Command::Run(args) => run::Job::new(args, &cli.global, &config)?.run(),
        Command::Explain(args) => explain::explain(args, &config),
        Command::Schema => setup::schema(&Place::new(cli.global.store.as_deref())?),
        other => on_store(other, &cli.global, &config),
    }
}

/// The short subcommands: input is checked first, then the store is opened.
fn on_store(command: Command, global: &Global, config: &Config) -> Outcome {
    logging::start(global.verbose, Config::log_format(global));
    let place = Place::new(global.store.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("cannot start the runtime: {error}")))?;
    match command {
        Command::Status(args) => {
            let status = status::Status::new(args, config)?;
            runtime.block_on(async { status.print(&*place.open().await?).await })
        }
        Command::List(args) => {
            let list = status::List::new(args, config)?;
            runtime.block_on(async { list.print(&*place.open().await?).await })
        }
        Command::Watch(args) => {
            let watch = watch::Watch::new(args, config)?;
            runtime.block_on(async { watch.print(&*place.open().await?).await })
        }
        Command::Acquire(args) => {
            let acquire = script::Acquire::new(args, config)?;
            runtime.block_on(async { acquire.take(&*place.open().await?).await })
        }
        Command::Renew(args) => {
            let renew = script::Renew::new(args, config)?;
            runtime.block_on(async { renew.renew(&*place.open().await?).await })
        }
        Command::Release(args) => {
            let release = script::Release::new(args, config)?;
            runtime.block_on(async { release.release(&*place.open().await?).await })
        }
        Command::StepDown(args) => {
            let step_down = script::StepDown::new(args, config)?;
            runtime.block_on(async { step_down.ask(&*place.open().await?).await })
        }
        Command::Init => runtime.block_on(setup::init(&place)),
        // The rest was dispatched before.
        _ => Err(Failure::internal("a subcommand was left out")),
    }
}
