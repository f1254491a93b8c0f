//! `sqlite:PATH`: a file of this machine.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tenure::{Error, Result, Store};
use tenure_sqlite::{Calls, Liveness as Life, SqliteStore};

use crate::open::{Liveness, OpenOptions, Prepared};
use crate::place::Place;

/// A path, and whether it may lie on a file system that other machines may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sqlite {
    path: PathBuf,
    network_allowed: bool,
}

impl Sqlite {
    pub(crate) fn parse(_scheme: &str, rest: &str) -> Result<Box<dyn Place>> {
        Self::new(rest).map(|place| Box::new(place) as Box<dyn Place>)
    }

    fn new(rest: &str) -> Result<Self> {
        let (path, options) = match rest.split_once('?') {
            Some((path, options)) => (path, Some(options)),
            None => (rest, None),
        };
        // sqlite:///a/b, as others write it.
        let path = match path.strip_prefix("//") {
            Some(path) if path.starts_with('/') => path,
            Some(path) => {
                let shown = crate::redact(path);
                return Err(Error::invalid(format!(
                    "sqlite://{shown} names a host, and a file has none: write sqlite:{shown}"
                )));
            }
            None => path,
        };
        if path.is_empty() {
            return Err(Error::invalid(
                "the store URL sqlite: has no path: write sqlite:PATH",
            ));
        }
        // No shell does this behind a colon.
        let path = match path.strip_prefix("~/") {
            Some(path) => crate::home::home()?.join(path),
            None => path.into(),
        };
        let mut network_allowed = false;
        for option in options.iter().flat_map(|options| options.split('&')) {
            match option {
                "network-file-system=allow" => network_allowed = true,
                other => {
                    return Err(Error::invalid(format!(
                        "a sqlite: store has no option \"{}\": there is network-file-system=allow",
                        other.split('=').next().unwrap_or(other)
                    )));
                }
            }
        }
        Ok(Self {
            path,
            network_allowed,
        })
    }
}

#[async_trait]
impl Place for Sqlite {
    fn prepare(&self) -> Result<Prepared> {
        Ok(Prepared {
            lock: Some(tenure_sqlite::HolderLock::create(&self.path)?),
        })
    }

    async fn open(self: Box<Self>, options: OpenOptions) -> Result<Arc<dyn Store>> {
        let liveness = match options.liveness {
            Liveness::Process => Life::Process,
            Liveness::None => Life::None,
            Liveness::Prepared(prepared) => prepared.lock.map(Life::Lock).ok_or_else(|| {
                Error::invalid("what was prepared is for another store: prepare this one")
            })?,
        };
        let sqlite = SqliteStore::options(self.path)
            .liveness(liveness)
            .allow_network_file_system(self.network_allowed);
        let store = if options.inline {
            sqlite.calls(Calls::Inline).open()?
        } else {
            beside(move || sqlite.open()).await?
        };
        Ok(Arc::new(store))
    }
}

/// Runs what blocks on a thread of its own, so that a slow disk does not hold up the caller's.
async fn beside<T: Send + 'static>(
    blocking: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, answer) = tokio::sync::oneshot::channel();
    let started = std::thread::Builder::new().name("tenure-open".into());
    let started = started.spawn(move || {
        // Nobody waits any more: the store is closed again.
        let _ = done.send(blocking());
    });
    let failed =
        |why: &str| Error::unavailable(format!("the store cannot be opened ({why}): try again"));
    started.map_err(|error| failed(&error.to_string()))?;
    answer.await.map_err(|_| failed("its thread ended"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let file = |path: &str, network_allowed| Sqlite {
            path: path.into(),
            network_allowed,
        };
        let new = |rest: &str| Sqlite::new(rest).unwrap();
        assert_eq!(new("a.db"), file("a.db", false));
        assert_eq!(new("/a/b c:d.db"), file("/a/b c:d.db", false));
        assert_eq!(new("///a.db"), file("/a.db", false));
        let allowed = "a.db?network-file-system=allow";
        assert_eq!(new(allowed), file("a.db", true));
        let refused = |rest: &str| Sqlite::new(rest).unwrap_err().to_string();
        assert!(refused("").contains("sqlite:PATH"));
        assert!(refused("//a.db").contains("write sqlite:a.db"));
        assert!(refused("a.db?mode=ro").contains("\"mode\""));
    }
}
