//! `tenure acquire`, `renew`, `release` and `step-down`: for scripts that keep a lease themselves.

use std::time::Duration;

use serde::Serialize;
use tenure::{
    AcquireRequest, Acquired, Asked, Attempt, BootClock, Clock, Holder, HolderRequest, Key, Lease,
    Loss, Moment, Released, Renewed, Store, Timing, Token, Version,
};

use crate::args::{AcquireArgs, Format, LeaseFormat, ReleaseArgs, RenewArgs, StepDownArgs, Which};
use crate::calls;
use crate::config::Config;
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, LeaseView};

/// How often a script that waits asks again, at the latest.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// `tenure acquire`, with its input checked.
#[derive(Debug)]
pub struct Acquire {
    request: AcquireRequest,
    wait: Duration,
    conflict: u8,
    format: LeaseFormat,
}

/// A record that is being watched, for stores that judge no expiry themselves.
#[derive(Debug)]
struct Watched {
    version: Version,
    since: Moment,
}

impl Acquire {
    /// Checks the input.
    pub fn new(args: AcquireArgs, config: &Config) -> Result<Self, Failure> {
        let key = Key::new(args.key)?;
        let holder = match config.holder(args.holder)? {
            Some(name) => Holder::new(name)?,
            None => Holder::generate(),
        };
        let random = fastrand::Rng::new().u64(..);
        Ok(Self {
            request: AcquireRequest {
                key,
                holder,
                ttl: config.ttl(args.ttl)?,
                attempt: Attempt::first(random),
                ended: None,
            },
            wait: args.wait.unwrap_or_default(),
            conflict: config.conflict_exit_code(args.conflict_exit_code)?,
            format: config.lease_format(args.format)?,
        })
    }

    /// Takes the lease, waiting for it if asked to, and prints it.
    pub async fn take(mut self, store: &dyn Store) -> Outcome {
        let give_up_at = BootClock.now() + self.wait;
        let mut watched: Option<Watched> = None;
        loop {
            let held = match calls::bounded(store.acquire(&self.request)).await? {
                Acquired::Granted(lease) => {
                    print_lease(&lease, self.format)?;
                    return Ok(0);
                }
                Acquired::Held(lease) => lease,
            };
            let now = BootClock.now();
            if now >= give_up_at {
                return Err(Failure::new(self.conflict, held_by(&held)));
            }
            if held.rest.is_none() {
                self.request.ended = judge(&mut watched, &held, now);
            }
            let nap = held.rest.unwrap_or(ASK_EVERY).min(ASK_EVERY);
            let nap = nap.max(Duration::from_millis(5)).min(give_up_at - now);
            tokio::time::sleep(nap).await;
        }
    }
}

/// The version that has ended, once it was seen unchanged for its own term.
fn judge(watched: &mut Option<Watched>, held: &Lease, now: Moment) -> Option<Version> {
    match watched {
        Some(seen) if seen.version == held.version => {
            let term = Timing::with_ttl(held.ttl).watched_term(held.ttl);
            (now - seen.since > term).then(|| held.version.clone())
        }
        _ => {
            *watched = Some(Watched {
                version: held.version.clone(),
                since: now,
            });
            None
        }
    }
}

/// Who has it and for how long, as the line of a failure.
pub fn held_by(lease: &Lease) -> String {
    let rest = lease
        .rest
        .map(|rest| format!(" for another {}", output::show(rest)));
    format!(
        "{} is held by {} (token {}){}: wait for it with --wait 30s",
        lease.key,
        lease.holder,
        lease.token,
        rest.unwrap_or_default()
    )
}

fn print_lease(lease: &Lease, format: LeaseFormat) -> std::io::Result<()> {
    match format {
        LeaseFormat::Json => output::json(&LeaseView::new(lease)),
        LeaseFormat::Text => output::line(&output::lines(lease)),
        LeaseFormat::Env => output::line(&format!(
            "export TENURE_KEY={} TENURE_HOLDER={} TENURE_TOKEN={} TENURE_TTL_MS={}",
            quoted(lease.key.as_str()),
            quoted(lease.holder.as_str()),
            lease.token,
            output::millis(lease.ttl)
        )),
    }
}

/// Text as one word of any shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The lease that renew or release mean, with its input checked.
#[derive(Debug)]
struct Named {
    key: Key,
    holder: Holder,
    token: Token,
}

impl Named {
    fn new(which: Which) -> Result<Self, Failure> {
        Ok(Self {
            key: Key::new(which.key)?,
            holder: Holder::new(which.holder)?,
            token: Token(which.token),
        })
    }

    /// The record, if it is still this lease: only the store knows its version.
    async fn find(&self, store: &dyn Store) -> tenure::Result<Result<Lease, Loss>> {
        Ok(match calls::bounded(store.read(&self.key)).await? {
            Some(lease) if lease.holder == self.holder && lease.token == self.token => Ok(lease),
            Some(Lease { holder, token, .. }) => Err(Loss::Superseded { holder, token }),
            None => Err(Loss::Expired),
        })
    }

    fn lost(&self, loss: &Loss) -> Failure {
        let why = match loss {
            Loss::Superseded { holder, token } => format!("{holder} has it, with token {token}"),
            Loss::Expired => "its term has ended".into(),
            Loss::Deleted => "it was freed or its record is gone".into(),
        };
        Failure::new(
            exit::LEASE_LOST,
            format!(
                "the lease on {} with token {} is lost: {why}: stop the work and acquire it anew",
                self.key, self.token
            ),
        )
    }
}

/// `tenure renew`, with its input checked.
#[derive(Debug)]
pub struct Renew {
    named: Named,
    ttl: Option<Duration>,
    format: LeaseFormat,
}

impl Renew {
    /// Checks the input.
    pub fn new(args: RenewArgs, config: &Config) -> Result<Self, Failure> {
        if let Some(ttl) = args.ttl {
            config.ttl(Some(ttl))?;
        }
        Ok(Self {
            named: Named::new(args.which)?,
            ttl: args.ttl,
            format: config.lease_format(args.format)?,
        })
    }

    /// Renews the lease and prints it.
    pub async fn renew(self, store: &dyn Store) -> Outcome {
        let lease = match self.named.find(store).await? {
            Ok(lease) => lease,
            Err(loss) => return Err(self.named.lost(&loss)),
        };
        let ttl = self.ttl.unwrap_or(lease.ttl);
        match calls::bounded(store.renew(&lease, ttl)).await? {
            Renewed::Renewed(lease, request) => {
                print_lease(&lease, self.format)?;
                if let Some(HolderRequest::StepDown) = request {
                    eprintln!(
                        "tenure: somebody asks you to step down: tenure release {}",
                        lease.key
                    );
                }
                Ok(0)
            }
            Renewed::Lost(loss) => Err(self.named.lost(&loss)),
        }
    }
}

/// `tenure release`, with its input checked.
#[derive(Debug)]
pub struct Release {
    named: Named,
    format: Format,
}

#[derive(Serialize)]
struct ReleaseView {
    key: String,
    released: bool,
}

impl Release {
    /// Checks the input.
    pub fn new(args: ReleaseArgs, config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            named: Named::new(args.which)?,
            format: config.format(args.format)?,
        })
    }

    /// Frees the lease if it is still this one; says which it was.
    pub async fn release(self, store: &dyn Store) -> Outcome {
        let released = match self.named.find(store).await? {
            Ok(lease) => calls::bounded(store.release(&lease)).await? == Released::Released,
            Err(_) => false,
        };
        let key = &self.named.key;
        match self.format {
            Format::Json => output::json(&ReleaseView {
                key: key.to_string(),
                released,
            })?,
            Format::Text if released => output::line(&format!("{key} is free"))?,
            Format::Text => output::line(&format!("{key} was not held by you: nothing was done"))?,
        }
        Ok(0)
    }
}

/// `tenure step-down`, with its input checked.
#[derive(Debug)]
pub struct StepDown {
    key: Key,
    wait: Option<Duration>,
    format: Format,
}

#[derive(Serialize)]
struct StepDownView {
    key: String,
    asked: bool,
    holder: Option<String>,
    token: Option<u64>,
    resigned: Option<bool>,
}

impl StepDown {
    /// Checks the input.
    pub fn new(args: StepDownArgs, config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            key: Key::new(args.key)?,
            wait: args.wait,
            format: config.format(args.format)?,
        })
    }

    /// Leaves the request, and waits until it is met if asked to.
    pub async fn ask(self, store: &dyn Store) -> Outcome {
        let asked = calls::bounded(store.ask(&self.key, HolderRequest::StepDown)).await?;
        let Asked::Left { holder, token } = asked else {
            self.print(None, None)?;
            return Ok(0);
        };
        let resigned = match self.wait {
            Some(wait) => Some(self.wait_for_end(store, token, wait).await?),
            None => None,
        };
        self.print(Some((holder, token)), resigned)?;
        Ok(if resigned == Some(false) {
            exit::NOT_ACQUIRED
        } else {
            0
        })
    }

    async fn wait_for_end(
        &self,
        store: &dyn Store,
        token: Token,
        wait: Duration,
    ) -> tenure::Result<bool> {
        let give_up_at = BootClock.now() + wait;
        loop {
            let lease = calls::bounded(store.read(&self.key)).await?;
            if lease.is_none_or(|lease| lease.token != token) {
                return Ok(true);
            }
            let now = BootClock.now();
            if now >= give_up_at {
                return Ok(false);
            }
            tokio::time::sleep((ASK_EVERY / 5).min(give_up_at - now)).await;
        }
    }

    fn print(&self, asked: Option<(Holder, Token)>, resigned: Option<bool>) -> std::io::Result<()> {
        let key = &self.key;
        if self.format == Format::Json {
            return output::json(&StepDownView {
                key: key.to_string(),
                asked: asked.is_some(),
                holder: asked.as_ref().map(|(holder, _)| holder.to_string()),
                token: asked.as_ref().map(|(_, token)| token.0),
                resigned,
            });
        }
        let Some((holder, token)) = asked else {
            return output::line(&format!("nobody holds {key}: nothing to ask"));
        };
        output::line(&match resigned {
            None => format!("asked {holder} (token {token}) to resign from {key}"),
            Some(true) => format!("{holder} (token {token}) has resigned from {key}"),
            Some(false) => format!("{holder} (token {token}) still holds {key}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_survive_a_shell() {
        assert_eq!(quoted("a'b c"), r"'a'\''b c'");
    }

    #[test]
    fn a_watched_record_ends_after_its_own_term() {
        let lease = |version: &str| Lease {
            key: Key::new("k").unwrap(),
            holder: Holder::new("h").unwrap(),
            token: Token(1),
            attempt: None,
            ttl: Duration::from_secs(10),
            rest: None,
            acquired_at: None,
            version: Version::new(version),
        };
        let at = |s: u64| Moment::from_nanos(s * 1_000_000_000);
        let mut watched = None;
        assert_eq!(judge(&mut watched, &lease("1"), at(0)), None);
        assert_eq!(judge(&mut watched, &lease("1"), at(10)), None);
        assert_eq!(judge(&mut watched, &lease("2"), at(11)), None);
        assert_eq!(judge(&mut watched, &lease("2"), at(21)), None);
        assert!(judge(&mut watched, &lease("2"), at(22)).is_some());
    }
}
