//! What the kernel knows of this process: how many threads, which signals are ignored.

use std::fs;
use std::io;

/// From `/proc/self/status`.
#[derive(Clone, Copy, Debug)]
pub struct ProcStatus {
    /// How many threads this process has.
    pub threads: u32,
    ignored: u64,
}

impl ProcStatus {
    /// As it is now.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/self/status")?))
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map_or("", str::trim)
        };
        Self {
            threads: field("Threads:").parse().unwrap_or(u32::MAX),
            ignored: u64::from_str_radix(field("SigIgn:"), 16).unwrap_or(0),
        }
    }

    /// Whether this process ignores the signal.
    pub fn ignores(&self, signal: i32) -> bool {
        self.ignored >> (signal - 1) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let status = ProcStatus::parse("Name:\tx\nThreads:\t3\nSigIgn:\t0000000000001001\n");
        assert_eq!(status.threads, 3);
        assert!(status.ignores(1) && status.ignores(13));
        assert!(!status.ignores(2) && !status.ignores(15));
    }
}
