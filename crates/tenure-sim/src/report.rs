//! What came of a run.

use std::fmt;

use crate::planted::{self, Bug};
use crate::profile::Profile;
use crate::timeline::Trace;
use crate::world::World;

/// A promise that did not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The checker that saw it.
    pub checker: &'static str,
    /// When, in nanoseconds of true time.
    pub at: u64,
    /// What it saw.
    pub text: String,
}

/// What a run has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How much true time passed in the simulated world.
    pub simulated_ns: u64,
    /// Events that happened.
    pub events: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Tenures that began.
    pub tenures: u64,
    /// Writes that the fence turned away.
    pub turned_away: u64,
    /// Older writes that went through where there is no fence.
    pub unfenced_older: u64,
    /// Times that a checker complained.
    pub violations: u64,
}

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The name of the profile.
    pub profile: &'static str,
    /// The planted bug, if there was one.
    pub bug: Option<Bug>,
    /// The first complaint of each checker.
    pub violations: Vec<Violation>,
    /// What was counted.
    pub count: Count,
    /// The hash of the whole timeline; zero if it was not traced.
    pub hash: u64,
    /// The timeline, if it was traced in full.
    pub lines: Vec<String>,
    tenures: String,
    set_up: String,
}

/// Runs one seed of a profile, with or without a planted bug. The same arguments give
/// the same run, to the byte; the trace does not change it.
pub fn run(seed: u64, profile: &'static Profile, bug: Option<Bug>, trace: Trace) -> Report {
    let mut world = World::new(seed, profile, bug, trace);
    world.run();
    let set_up = format!(
        "{} nodes, a {:?} store{}, latency up to {:.3?} one way\n{}",
        world.nodes.len(),
        world.store.kind,
        if world.watches {
            " that pushes changes"
        } else {
            ""
        },
        std::time::Duration::from_nanos(world.latency_max),
        world.settings.timing,
    );
    let traced = trace != Trace::Off;
    Report {
        seed,
        profile: profile.name,
        bug,
        violations: world.violations,
        count: world.count,
        hash: if traced { world.timeline.hash } else { 0 },
        tenures: world.timeline.tenures(),
        lines: world.timeline.lines,
        set_up,
    }
}

impl Report {
    /// Whether the checker of this name complained.
    pub fn caught_by(&self, checker: &str) -> bool {
        self.violations.iter().any(|v| v.checker == checker)
    }

    /// The command that repeats this run and prints its timeline.
    pub fn command(&self) -> String {
        let (seed, profile) = (self.seed, self.profile);
        let mut command =
            format!("cargo run -p tenure-sim -- run --seed {seed} --profile {profile}");
        if let Some(bug) = self.bug {
            let name = planted::PLANTED.iter().find(|p| p.bug == bug);
            command += &format!(" --bug {}", name.map_or("?", |p| p.name));
        }
        command
    }
}

/// For people: the set-up, the timeline, who led when, what did not hold.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, profile {}: {}",
            self.seed, self.profile, self.set_up
        )?;
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        if !self.tenures.is_empty() {
            writeln!(
                f,
                "\nwho said that it leads, and how it ended:\n{}",
                self.tenures
            )?;
        }
        let count = &self.count;
        writeln!(
            f,
            "{:.1} simulated seconds, {} events, {} faults, {} tenures, {} writes turned away",
            count.simulated_ns as f64 / 1e9,
            count.events,
            count.faults,
            count.tenures,
            count.turned_away,
        )?;
        for violation in &self.violations {
            let at = violation.at as f64 / 1e9;
            writeln!(
                f,
                "VIOLATION at {at:.6} s: {}: {}",
                violation.checker, violation.text
            )?;
        }
        if self.violations.is_empty() {
            writeln!(f, "no violations")?;
        }
        write!(f, "again: {}", self.command())
    }
}
