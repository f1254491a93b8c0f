//! `tenure watch`: each change of who holds what, as it happens.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use serde::Serialize;
use tenure::{Key, Lease, Store, Token};

use crate::args::{Format, WatchArgs};
use crate::calls;
use crate::config::Config;
use crate::exit::{Failure, Outcome};
use crate::output;

/// One change, for programs.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Change {
    at: String,
    key: String,
    event: &'static str,
    holder: Option<String>,
    token: u64,
    ttl_ms: Option<u64>,
}

/// What `tenure watch` is asked, checked before any store is opened.
#[derive(Debug)]
pub struct Watch {
    key: Option<Key>,
    every: Duration,
    changes: Option<u64>,
    format: Format,
}

/// Who held what at the last look.
#[derive(Debug, Default)]
struct Seen {
    tenures: BTreeMap<String, (String, Token)>,
}

impl Seen {
    /// Takes the leases of now and tells what is different.
    fn compare(&mut self, leases: &[Lease]) -> Vec<Change> {
        let mut changes = Vec::new();
        let now: BTreeMap<String, &Lease> = leases.iter().map(|l| (l.key.to_string(), l)).collect();
        self.tenures.retain(|key, (holder, token)| {
            let held = now.contains_key(key);
            if !held {
                changes.push(change(key, "free", Some(holder), *token, None));
            }
            held
        });
        for (key, lease) in now {
            let tenure = (lease.holder.to_string(), lease.token);
            if self.tenures.get(&key) != Some(&tenure) {
                let ttl = Some(lease.ttl);
                changes.push(change(&key, "held", Some(&tenure.0), tenure.1, ttl));
                self.tenures.insert(key, tenure);
            }
        }
        changes
    }
}

fn change(
    key: &str,
    event: &'static str,
    holder: Option<&str>,
    token: Token,
    ttl: Option<Duration>,
) -> Change {
    Change {
        at: output::wall_now(),
        key: key.to_owned(),
        event,
        holder: holder.map(str::to_owned),
        token: token.0,
        ttl_ms: ttl.map(output::millis),
    }
}

impl Watch {
    /// Checks the input.
    pub fn new(args: WatchArgs, config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            key: args.key.map(Key::new).transpose()?,
            every: config.every(args.every)?,
            changes: config.changes(args.changes)?,
            format: config.format(args.format)?,
        })
    }

    /// Prints what is, then each change, until interrupted or enough were seen.
    pub async fn print(self, store: &dyn Store) -> Outcome {
        let mut seen = Seen::default();
        let mut left = self.changes;
        let first = seen.compare(&self.look(store).await?);
        if let (Some(key), true) = (&self.key, first.is_empty()) {
            self.print_change(&change(key.as_str(), "free", None, Token(0), None))?;
        }
        for change in &first {
            self.print_change(change)?;
        }
        let mut failing = false;
        let mut pushed = self.pushed(store).await;
        while left != Some(0) {
            tokio::select! {
                () = tokio::time::sleep(self.every) => {}
                ended = &mut pushed.next => pushed.turn(ended, self.pushed(store)).await,
            }
            // An outage is no change: it is told once, and watching goes on.
            let leases = match self.look(store).await {
                Ok(leases) => leases,
                Err(error) if !failing => {
                    eprintln!("tenure: {error}: still watching");
                    failing = true;
                    continue;
                }
                Err(_) => continue,
            };
            failing = false;
            for change in seen.compare(&leases) {
                self.print_change(&change)?;
                left = left.map(|left| left.saturating_sub(1));
                if left == Some(0) {
                    break;
                }
            }
        }
        Ok(0)
    }

    async fn look(&self, store: &dyn Store) -> tenure::Result<Vec<Lease>> {
        match &self.key {
            Some(key) => Ok(calls::bounded(store.read(key)).await?.into_iter().collect()),
            None => calls::bounded(store.list("", usize::MAX >> 1)).await,
        }
    }

    /// Notices, where the store can push them for one key; each only makes us look sooner.
    async fn pushed(&self, store: &dyn Store) -> Pushed {
        if let Some(key) = &self.key
            && store.traits().watch
            && let Ok(notices) = calls::bounded(store.watch(key)).await
        {
            return Pushed::of(notices);
        }
        Pushed::never()
    }

    fn print_change(&self, change: &Change) -> io::Result<()> {
        if self.format == Format::Json {
            return output::json(change);
        }
        let on = output::colour_on(&io::stdout());
        let Change { at, key, token, .. } = change;
        let holder = change.holder.as_deref();
        let text = match (change.event, holder) {
            ("held", Some(holder)) => output::paint(&format!("held by {holder}"), "32", on),
            (_, Some(holder)) => output::paint(&format!("free, was {holder}"), "33", on),
            (_, None) => output::paint("free", "33", on),
        };
        let token = holder
            .map(|_| format!("  token {token}"))
            .unwrap_or_default();
        output::line(&format!("{at}  {key}  {text}{token}"))
    }
}

type Notices = futures_util::stream::BoxStream<'static, tenure::Notice>;
type Next = Pin<Box<dyn Future<Output = Option<Notices>> + Send>>;

/// The next pushed notice; it gives the stream back for the one after.
struct Pushed {
    next: Next,
}

impl Pushed {
    fn of(mut notices: Notices) -> Self {
        let next = async move { notices.next().await.map(|_| notices) };
        Self {
            next: Box::pin(next),
        }
    }

    fn never() -> Self {
        Self {
            next: Box::pin(std::future::pending()),
        }
    }

    /// Waits for the next one: on the same stream, or on a new one if that has ended.
    async fn turn(&mut self, ended: Option<Notices>, anew: impl Future<Output = Pushed>) {
        *self = match ended {
            Some(notices) => Self::of(notices),
            None => anew.await,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::{Holder, Version};

    fn lease(key: &str, holder: &str, token: u64) -> Lease {
        Lease {
            key: Key::new(key).unwrap(),
            holder: Holder::new(holder).unwrap(),
            token: Token(token),
            attempt: None,
            ttl: Duration::from_secs(1),
            rest: None,
            acquired_at: None,
            version: Version::new("1"),
        }
    }

    fn events(changes: &[Change]) -> Vec<(&str, &str, u64)> {
        changes
            .iter()
            .map(|c| (c.key.as_str(), c.event, c.token))
            .collect()
    }

    #[test]
    fn changes_are_told_once() {
        let mut seen = Seen::default();
        let first = seen.compare(&[lease("a", "x", 1), lease("b", "y", 2)]);
        assert_eq!(events(&first), [("a", "held", 1), ("b", "held", 2)]);
        assert!(
            seen.compare(&[lease("a", "x", 1), lease("b", "y", 2)])
                .is_empty()
        );
        let taken = seen.compare(&[lease("a", "x", 3)]);
        assert_eq!(events(&taken), [("b", "free", 2), ("a", "held", 3)]);
    }
}
