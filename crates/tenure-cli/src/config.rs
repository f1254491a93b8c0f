//! The config file: a value for any flag, under the flag's own name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use tenure::Timing;
use toml::{Table, Value};

use crate::args::{self, Format, Global, LeaseFormat, LogFormat, RunArgs, TimingArgs};
use crate::exit::{Failure, one_line};

/// The names that may stand in the file: those of the long flags.
const NAMES: [&str; 21] = [
    "at-least",
    "call-timeout",
    "changes",
    "conflict-exit-code",
    "drift",
    "every",
    "fast",
    "format",
    "grace",
    "holder",
    "jitter",
    "limit",
    "log-format",
    "no-wait",
    "poll-every",
    "renew-every",
    "restart",
    "store",
    "ttl",
    "verbose",
    "wait",
];

/// What the config file says; empty if there is none.
#[derive(Debug, Default)]
pub struct Config {
    path: PathBuf,
    table: Table,
}

impl Config {
    /// Reads the file that `--config` or TENURE_CONFIG names, else the user's own if there is one.
    pub fn find(global: &Global) -> Result<Self, Failure> {
        if let Some(path) = &global.config {
            return Self::read(path);
        }
        match default_path() {
            Some(path) if path.exists() => Self::read(&path),
            _ => Ok(Self::default()),
        }
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!(
                "cannot read the config file {}: {error}: check --config and TENURE_CONFIG",
                path.display()
            ))
        })?;
        Self::parse(path, &text)
    }

    /// Takes the text of the file apart.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let table = text.parse::<Table>().map_err(|error| {
            Failure::usage(format!(
                "the config file {} is not TOML: {}",
                path.display(),
                one_line(error.message())
            ))
        })?;
        for name in table.keys() {
            check_name(path, name)?;
        }
        Ok(Self {
            path: path.to_owned(),
            table,
        })
    }

    fn wrong(&self, name: &str, expected: &str) -> Failure {
        let value = self.table.get(name).map(Value::to_string);
        Failure::usage(format!(
            "the config file {} has {name} = {}: {expected}",
            self.path.display(),
            value.unwrap_or_default()
        ))
    }

    fn text(&self, name: &str) -> Result<Option<String>, Failure> {
        match self.table.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(name, "write it as text, in quotes")),
        }
    }

    fn time(&self, name: &str) -> Result<Option<Duration>, Failure> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let time = args::duration(&text).map_err(|hint| self.wrong(name, &hint))?;
        Ok(Some(time))
    }

    fn part(&self, name: &str) -> Result<Option<f64>, Failure> {
        match self.table.get(name) {
            None => Ok(None),
            Some(Value::Float(part)) => Ok(Some(*part)),
            Some(Value::Integer(0)) => Ok(Some(0.0)),
            Some(_) => Err(self.wrong(name, "write it as a fraction, like 0.01")),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.table.get(name) {
            None => Ok(false),
            Some(Value::Boolean(on)) => Ok(*on),
            Some(_) => Err(self.wrong(name, "write true or false")),
        }
    }

    fn number<N: TryFrom<i64>>(&self, name: &str) -> Result<Option<N>, Failure> {
        match self.table.get(name) {
            None => Ok(None),
            Some(Value::Integer(number)) => match N::try_from(*number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.wrong(name, "the number is out of range")),
            },
            Some(_) => Err(self.wrong(name, "write a whole number")),
        }
    }

    fn choice<C: ValueEnum>(&self, name: &str) -> Result<Option<C>, Failure> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let names: Vec<String> = C::value_variants()
            .iter()
            .filter_map(|c| Some(c.to_possible_value()?.get_name().to_owned()))
            .collect();
        match C::from_str(&text, false) {
            Ok(choice) => Ok(Some(choice)),
            Err(_) => Err(self.wrong(name, &format!("choose one of {}", names.join(", ")))),
        }
    }

    /// Whether every value is one that its flag would take.
    pub fn check(&self) -> Result<(), Failure> {
        self.fill_global(&mut Global::default())?;
        self.fill_run(&mut RunArgs::default())?;
        self.conflict_exit_code(None)?;
        self.format(None)?;
        self.lease_format(None)?;
        self.limit(None)?;
        self.every(None)?;
        self.changes(None)?;
        self.ttl(None)?;
        let mut timing = TimingArgs::default();
        self.fill_timing(&mut timing)?;
        timing.resolve().map(|_| ())
    }

    /// Fills in what neither flag nor environment said.
    pub fn fill_global(&self, global: &mut Global) -> Result<(), Failure> {
        // An empty TENURE_STORE is how many scripts say "none".
        global.store = global.store.take().filter(|url| !url.is_empty());
        if global.store.is_none() {
            global.store = self.text("store")?;
        }
        if global.verbose == 0 {
            global.verbose = self.number("verbose")?.unwrap_or(0);
        }
        if global.log_format.is_none() {
            global.log_format = self.choice("log-format")?;
        }
        Ok(())
    }

    /// Fills in the rest of `tenure run`.
    pub fn fill_run(&self, run: &mut RunArgs) -> Result<(), Failure> {
        // What the command line says about waiting wins over both words of the file.
        if run.wait.is_none() && !run.no_wait {
            run.wait = self.time("wait")?;
            run.no_wait = self.flag("no-wait")?;
            if run.wait.is_some() && run.no_wait {
                return Err(self.wrong("no-wait", "it cannot stand beside wait: remove one"));
            }
        }
        run.restart |= self.flag("restart")?;
        fill(&mut run.conflict_exit_code, || {
            self.number("conflict-exit-code")
        })?;
        fill(&mut run.at_least, || self.time("at-least"))?;
        fill(&mut run.holder, || self.text("holder"))?;
        self.fill_timing(&mut run.timing)
    }

    /// Fills in the timing.
    pub fn fill_timing(&self, timing: &mut TimingArgs) -> Result<(), Failure> {
        if timing.ttl.is_none() && !timing.fast {
            timing.ttl = self.time("ttl")?;
            timing.fast = self.flag("fast")? && timing.ttl.is_none();
        }
        fill(&mut timing.renew_every, || self.time("renew-every"))?;
        fill(&mut timing.call_timeout, || self.time("call-timeout"))?;
        fill(&mut timing.grace, || self.time("grace"))?;
        fill(&mut timing.poll_every, || self.time("poll-every"))?;
        fill(&mut timing.drift, || self.part("drift"))?;
        fill(&mut timing.jitter, || self.part("jitter"))
    }

    /// The ttl of a lease that nobody renews.
    pub fn ttl(&self, given: Option<Duration>) -> Result<Duration, Failure> {
        let timing = TimingArgs {
            ttl: given,
            ..TimingArgs::default()
        };
        let mut timing = timing;
        if timing.ttl.is_none() {
            timing.ttl = self.time("ttl")?;
        }
        Ok(timing.resolve()?.ttl)
    }

    /// The holder, if the file gives one.
    pub fn holder(&self, given: Option<String>) -> Result<Option<String>, Failure> {
        filled(given, || self.text("holder"))
    }

    /// The exit code of a conflict.
    pub fn conflict_exit_code(&self, given: Option<u8>) -> Result<u8, Failure> {
        let code = filled(given, || self.number("conflict-exit-code"))?;
        Ok(code.unwrap_or(crate::exit::NOT_ACQUIRED))
    }

    /// How results look.
    pub fn format(&self, given: Option<Format>) -> Result<Format, Failure> {
        let format = filled(given, || self.choice("format"))?;
        Ok(format.unwrap_or(Format::Text))
    }

    /// How a lease is printed.
    pub fn lease_format(&self, given: Option<LeaseFormat>) -> Result<LeaseFormat, Failure> {
        let format = filled(given, || self.choice("format"))?;
        Ok(format.unwrap_or(LeaseFormat::Text))
    }

    /// The limit of a list.
    pub fn limit(&self, given: Option<usize>) -> Result<usize, Failure> {
        Ok(filled(given, || self.number("limit"))?.unwrap_or(1000))
    }

    /// After how many changes to leave.
    pub fn changes(&self, given: Option<u64>) -> Result<Option<u64>, Failure> {
        filled(given, || self.number("changes"))
    }

    /// How often to look.
    pub fn every(&self, given: Option<Duration>) -> Result<Duration, Failure> {
        let every = filled(given, || self.time("every"))?.unwrap_or(Duration::from_secs(1));
        if every.is_zero() {
            return Err(Failure::usage(
                "looking every 0s would never rest: give --every a positive time, such as 1s",
            ));
        }
        Ok(every)
    }

    /// How log lines look.
    pub fn log_format(global: &Global) -> LogFormat {
        global.log_format.unwrap_or(LogFormat::Text)
    }
}

fn fill<T>(
    place: &mut Option<T>,
    from: impl FnOnce() -> Result<Option<T>, Failure>,
) -> Result<(), Failure> {
    if place.is_none() {
        *place = from()?;
    }
    Ok(())
}

fn filled<T>(
    mut given: Option<T>,
    from: impl FnOnce() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    fill(&mut given, from)?;
    Ok(given)
}

fn default_path() -> Option<PathBuf> {
    let folder = match std::env::var_os("XDG_CONFIG_HOME") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => PathBuf::from(std::env::var_os("HOME")?).join(".config"),
    };
    Some(folder.join("tenure").join("config.toml"))
}

fn check_name(path: &Path, name: &str) -> Result<(), Failure> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    let plain = name.replace('_', "-").to_lowercase();
    let nearest = NAMES
        .iter()
        .min_by_key(|known| strsim::osa_distance(&plain, known))
        .copied()
        .unwrap_or_default();
    Err(Failure::usage(format!(
        "the config file {} has the unknown name \"{name}\": did you mean \"{nearest}\"?",
        path.display()
    )))
}

impl TimingArgs {
    /// The timing that these flags mean, unchecked.
    pub fn timing(&self) -> Timing {
        let base = match self.ttl {
            Some(ttl) => Timing::with_ttl(ttl),
            None if self.fast => Timing::fast(),
            None => Timing::default(),
        };
        Timing {
            ttl: base.ttl,
            renew_every: self.renew_every.unwrap_or(base.renew_every),
            call_timeout: self.call_timeout.unwrap_or(base.call_timeout),
            grace: self.grace.unwrap_or(base.grace),
            poll_every: self.poll_every.unwrap_or(base.poll_every),
            drift: self.drift.unwrap_or(base.drift),
            jitter: self.jitter.unwrap_or(base.jitter),
        }
    }

    /// The timing that these flags mean; refused with its sum if it cannot hold.
    pub fn resolve(&self) -> Result<Timing, Failure> {
        let timing = self.timing();
        timing.check()?;
        Ok(timing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Failure> {
        Config::parse(Path::new("t.toml"), text)
    }

    #[test]
    fn a_mistyped_name_is_named_with_the_nearest() {
        for (wrong, right) in [
            ("renew-evry", "renew-every"),
            ("call_timeout", "call-timeout"),
            ("stor", "store"),
            ("TTL", "ttl"),
        ] {
            let failure = parse(&format!("{wrong} = \"1s\"")).unwrap_err();
            assert_eq!(failure.code(), 64);
            let text = failure.to_string();
            assert!(text.contains(&format!("\"{wrong}\"")), "{text}");
            assert!(text.contains(&format!("\"{right}\"")), "{text}");
        }
    }

    #[test]
    fn every_long_flag_may_stand_in_the_file() {
        let not_in_file = [
            "config",
            "help",
            "version",
            "token",
            // The demo brings its own settings.
            "contenders",
            "for",
            "kill-every",
        ];
        let mut definition = crate::args::Cli::definition();
        definition.build();
        for subcommand in definition.get_subcommands() {
            for arg in subcommand.get_arguments() {
                let Some(long) = arg.get_long() else { continue };
                if !not_in_file.contains(&long) {
                    assert!(NAMES.contains(&long), "--{long}");
                }
            }
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let config = parse("ttl = \"9s\"\ngrace = \"1s\"\ndrift = 0").unwrap();
        let mut timing = TimingArgs {
            ttl: Some(Duration::from_secs(6)),
            ..TimingArgs::default()
        };
        config.fill_timing(&mut timing).unwrap();
        assert_eq!(timing.ttl, Some(Duration::from_secs(6)));
        assert_eq!(timing.grace, Some(Duration::from_secs(1)));
        assert_eq!(timing.drift, Some(0.0));
    }

    #[test]
    fn a_wrong_value_is_named() {
        let config = parse("ttl = 9").unwrap();
        let mut timing = TimingArgs::default();
        let text = config.fill_timing(&mut timing).unwrap_err().to_string();
        assert!(text.contains("ttl = 9"), "{text}");
    }
}
