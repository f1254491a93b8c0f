//! Wrong clocks for child processes, by libfaketime.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program;

/// A clock that shows something else, or runs at another rate, for one child process.
///
/// It works by preloading libfaketime, on programs that take the time from the C library:
/// PostgreSQL, Redis, and Rust's `SystemTime`. Programs in Go (etcd) and code that asks
/// the kernel directly (rustix) are not reached.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct ClockFault {
    offset_seconds: i64,
    rate: f64,
    wall_only: bool,
}

impl ClockFault {
    /// The clock shows this many seconds more (or less) than it is.
    pub fn offset(seconds: i64) -> Self {
        Self {
            offset_seconds: seconds,
            rate: 1.0,
            wall_only: true,
        }
    }

    /// The clock runs this many times as fast as time does. Timers run by it too.
    pub fn rate(self, rate: f64) -> Self {
        Self {
            rate,
            wall_only: false,
            ..self
        }
    }

    /// Only the wall clock is wrong (the default without a rate), or the monotonic one too.
    pub fn wall_only(self, wall_only: bool) -> Self {
        Self { wall_only, ..self }
    }

    /// Whether this machine has libfaketime. If not, that is said as for a missing server.
    pub fn is_available() -> bool {
        library().is_some() || {
            program::missing_library();
            false
        }
    }

    /// Sets the environment of a command that is about to be started.
    ///
    /// # Panics
    /// Without libfaketime on this machine: ask [`is_available`](Self::is_available) first.
    pub fn apply(&self, command: &mut Command) {
        let library = library().unwrap_or_else(|| panic!("no libfaketime on this machine"));
        let Self {
            offset_seconds,
            rate,
            wall_only,
        } = self;
        // With the C library before jemalloc, its malloc is used: jemalloc, which Redis
        // brings along, asks for the time before libfaketime is ready, and both hang.
        let preload = format!("{}:libc.so.6", library.display());
        command
            .env("LD_PRELOAD", preload)
            .env("FAKETIME", format!("{offset_seconds:+}s x{rate}"))
            .env("FAKETIME_DONT_RESET", "1")
            .env(
                "FAKETIME_DONT_FAKE_MONOTONIC",
                if *wall_only { "1" } else { "0" },
            );
    }
}

fn library() -> Option<PathBuf> {
    let roots = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(Path::new);
    let direct = roots.iter().map(|root| root.to_path_buf());
    let nested = roots.iter().flat_map(|root| {
        let entries = root.read_dir().into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    });
    // The variant for programs with threads.
    let mut files = direct
        .chain(nested)
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    files.find(|file| file.is_file())
}
