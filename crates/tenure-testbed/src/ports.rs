//! Free ports, each for one server at a time, over all test processes of this user.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::run;

/// Below the range from which Linux takes the ports of outgoing connections (32768 and
/// up), so that no client of any test sits on a port between a stop and a start.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that is ours as long as this lives, over stops and starts of the server.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// The next one that no test process has and nobody listens on.
    pub(crate) fn claim() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let folder = run::base().join("ports");
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let own = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let offset = (u32::from(own) * 37 + u32::from(step)) % u32::from(COUNT);
            let number = FIRST + u16::try_from(offset).unwrap_or(0);
            if let Some(port) = Self::try_claim(folder.join(number.to_string()), number) {
                return port;
            }
        }
        panic!("no free port from {FIRST} to {}", FIRST + COUNT);
    }

    fn try_claim(path: PathBuf, number: u16) -> Option<Self> {
        let lock = File::options().create(true).append(true).open(path).ok()?;
        lock.try_lock().ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self {
            number,
            _lock: lock,
        })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}
