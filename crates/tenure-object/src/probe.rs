//! The proof that a service refuses writes whose condition does not hold.

use std::fmt;

use futures_util::future::join_all;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStoreExt, PutPayload};
use tenure::{Error, Result};

use crate::exchange::watched;
use crate::objects::{Condition, Objects, Written};
use crate::version::Mark;

/// So many write at once under one condition: exactly one may come through.
const AT_ONCE: usize = 4;

/// What [`BucketStore::probe`](crate::BucketStore::probe) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// A question whether an object has changed is answered with no more than "no".
    pub not_modified: bool,
    /// The service's clock is seen, so a lease that ended long ago is taken at once.
    pub clock: bool,
    /// The throw-away object is gone again.
    pub removed: bool,
}

impl Probe {
    pub(crate) async fn run(objects: &Objects) -> Result<Self> {
        let nonce = fastrand::Rng::new().u64(..);
        let path = objects.path_of(&format!(".tenure/probe-{nonce:016x}"))?;
        let outcome = prove(objects, &path).await;
        let removed = objects.delete(&path).await.is_ok();
        let (not_modified, clock) = outcome?;
        Ok(Self {
            not_modified,
            clock,
            removed,
        })
    }
}

async fn prove(objects: &Objects, path: &Path) -> Result<(bool, bool)> {
    let write = |text: &'static str, condition: Condition| async move {
        let body = PutPayload::from_static(text.as_bytes());
        match objects.write_bytes(path, body, &condition).await? {
            Written::Done(mark, _) => Ok(Some(mark)),
            Written::Conflict => Ok(None),
            Written::Unknown(error) => Err(error),
        }
    };
    let fails = |what: &str| {
        Error::misconfigured(format!(
            "{} CANNOT HOLD LEASES: {what}, so two could lead at a time; use a service that keeps conditions, or switch them on",
            objects.place
        ))
    };
    let Some(first) = write("1", Condition::Absent).await? else {
        return Err(fails("it refuses to make a new object"));
    };
    if write("2", Condition::Absent).await?.is_some() {
        return Err(fails(
            "it writes over an object that must not be there (If-None-Match)",
        ));
    }
    let Some(second) = write("3", Condition::Is(first.clone())).await? else {
        return Err(fails("it refuses a write whose condition holds (If-Match)"));
    };
    if second.is(&first) {
        return Err(fails("two states of an object have one version"));
    }
    if write("4", Condition::Is(first)).await?.is_some() {
        return Err(fails(
            "it takes a write whose condition is stale (If-Match)",
        ));
    }
    let many = (0..AT_ONCE).map(|_| write("5", Condition::Is(second.clone())));
    let mut winners = 0;
    for answer in join_all(many).await {
        winners += usize::from(answer?.is_some());
    }
    if winners != 1 {
        return Err(fails(&format!(
            "of {AT_ONCE} writes at once under one condition {winners} come through"
        )));
    }
    look(objects, path, second).await
}

/// Whether "not modified" is understood, and whether the clock is seen.
async fn look(objects: &Objects, path: &Path, stale: Mark) -> Result<(bool, bool)> {
    let failed = |error: &object_store::Error| {
        Error::unavailable(format!("{} did not show an object: {error}", objects.place))
    };
    let client = objects.client();
    let (head, seen) = watched(path.as_ref(), client.head(path)).await;
    let head = head.map_err(|error| failed(&error))?;
    if head.e_tag.is_some() && head.e_tag == stale.e_tag {
        return Err(Error::misconfigured(format!(
            "{} CANNOT HOLD LEASES: it shows a state that was written over; use a service that shows what was written last",
            objects.place
        )));
    }
    let options = GetOptions {
        if_none_match: head.e_tag,
        ..GetOptions::default()
    };
    let asked = client.get_opts(path, options).await;
    let not_modified = matches!(asked, Err(object_store::Error::NotModified { .. }));
    Ok((not_modified, seen.date.is_some()))
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it refuses stale writes")?;
        f.write_str(match self.clock {
            true => ", shows its clock",
            false => ", shows no clock (a dead lease is watched for its whole term)",
        })?;
        f.write_str(match self.not_modified {
            true => ", answers \"not modified\"",
            false => ", sends an object again that has not changed",
        })?;
        if !self.removed {
            f.write_str(" (its throw-away object could not be deleted and lies in .tenure/)")?;
        }
        Ok(())
    }
}
