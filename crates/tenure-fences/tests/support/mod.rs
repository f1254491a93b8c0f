//! Two leaders of one key, both valid by their own clocks: what a pause, a frozen machine or
//! a store that forgot can make.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod counted;
pub mod turns;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure::{Elector, ManualClock, MemoryStore, Settings, StaleToken, Tenure, Token};
use tenure_fences::{FenceError, Result};

/// A leader with this token, on a store and a clock of its own. The clock stands still, so
/// it leads by its own lights for as long as the test wants.
pub struct Leader {
    pub tenure: Tenure,
    elector: Elector,
    clock: ManualClock,
}

impl Leader {
    pub async fn with_token(token: u64) -> Self {
        let clock = ManualClock::new();
        clock.set_wall(SystemTime::UNIX_EPOCH + Duration::from_micros(token));
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        let settings = Settings::new("fenced").unwrap();
        let elector = Elector::builder(store, settings)
            .clock(clock.clone())
            .start()
            .unwrap();
        let tenure = elector.elected().await.unwrap();
        assert_eq!(tenure.token(), Token(token));
        Self {
            tenure,
            elector,
            clock,
        }
    }

    /// Lets its time run out.
    pub fn expire(&self) {
        self.clock.advance(Duration::from_secs(3600));
        assert!(!self.tenure.is_valid());
    }
}

/// The old leader with token 7 and its successor with token 9, both valid by themselves.
pub async fn two_leaders() -> (Leader, Leader) {
    let leaders = (Leader::with_token(7).await, Leader::with_token(9).await);
    assert!(leaders.0.tenure.is_valid() && leaders.1.tenure.is_valid());
    leaders
}

#[track_caller]
pub fn assert_stale<T: std::fmt::Debug>(result: Result<T>, token: u64, seen: u64) {
    let expected = StaleToken {
        token: Token(token),
        seen: Token(seen),
    };
    match result {
        Err(FenceError::Stale(stale)) => assert_eq!(stale, expected),
        other => panic!("token {token} was not turned away by {seen}: {other:?}"),
    }
}

#[track_caller]
pub fn assert_ended<T: std::fmt::Debug>(result: Result<T>) {
    assert!(
        matches!(result, Err(FenceError::Ended { .. })),
        "{result:?}"
    );
}

#[track_caller]
pub fn assert_never_fenced<T: std::fmt::Debug>(result: Result<T>) {
    assert!(
        matches!(result, Err(FenceError::NeverFenced { .. })),
        "{result:?}"
    );
}

#[track_caller]
pub fn assert_busy<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(FenceError::Busy { .. })), "{result:?}");
}

#[track_caller]
pub fn assert_unreadable<T: std::fmt::Debug>(result: Result<T>) {
    assert!(
        matches!(result, Err(FenceError::Unreadable { .. })),
        "{result:?}"
    );
}

/// A block of code from the docs page, so that what stands there is what is tested: the
/// first block of this language that contains the words.
pub fn from_docs(language: &str, words: &str) -> String {
    let page = include_str!("../../../../docs/fencing.md");
    let open = format!("```{language}\n");
    let mut blocks = page.split(&open).skip(1).map(|rest| {
        let end = rest.find("\n```").expect("an open block of code");
        &rest[..end]
    });
    let block = blocks.find(|block| block.contains(words));
    block
        .unwrap_or_else(|| panic!("docs/fencing.md has no {language} with \"{words}\""))
        .to_owned()
}
