//! The timeline of a run: what a person reads when a seed has failed.

use std::fmt::Write as _;

use tenure::election::Answer;
use tenure::{Acquired, EndReason, Notice, Released, Renewed};

/// How much of a run is written down. It never changes the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// Nothing.
    #[default]
    Off,
    /// A hash of every line.
    Hash,
    /// Every line.
    Full,
}

/// The lines of a run, or their hash.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) trace: Trace,
    pub(crate) lines: Vec<String>,
    pub(crate) hash: u64,
    spans: Vec<Span>,
}

/// A time in which one node said that it leads.
#[derive(Debug)]
struct Span {
    node: usize,
    token: u64,
    from: u64,
    until: Option<u64>,
    why: String,
}

impl Timeline {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            trace,
            lines: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            spans: Vec::new(),
        }
    }

    pub(crate) fn line(&mut self, at: u64, who: &str, what: &str) {
        let line = format!("{:>14.6} s  {who:<7}  {what}", at as f64 / 1e9);
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.trace == Trace::Full {
            self.lines.push(line);
        }
    }

    pub(crate) fn began(&mut self, at: u64, node: usize, token: u64) {
        if self.trace == Trace::Full {
            let (until, why) = (None, String::new());
            self.spans.push(Span {
                node,
                token,
                from: at,
                until,
                why,
            });
        }
    }

    /// The deadline may have ended it before its reason was given.
    pub(crate) fn ended(&mut self, at: u64, node: usize, token: u64, why: &EndReason) {
        let same = |span: &&mut Span| span.node == node && span.token == token;
        if let Some(span) = self.spans.iter_mut().rev().find(same) {
            span.until = Some(at);
            span.why = why.to_string();
        }
    }

    pub(crate) fn crashed(&mut self, at: u64, node: usize) {
        let open = |span: &&mut Span| span.node == node && span.until.is_none();
        for span in self.spans.iter_mut().filter(open) {
            span.until = Some(at);
            span.why = "crashed".into();
        }
    }

    /// Who led from when to when, one line a tenure.
    pub(crate) fn tenures(&self) -> String {
        let mut text = String::new();
        for span in &self.spans {
            let from = span.from as f64 / 1e9;
            let until = span.until.map_or("the end".into(), |until| {
                format!("{:.6} s", until as f64 / 1e9)
            });
            let (node, token, why) = (span.node, span.token, &span.why);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "  node {node}  token {token}  {from:.6} s to {until}  {why}"
            );
        }
        text
    }
}

pub(crate) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Acquire(Ok(Acquired::Granted(lease))) => format!("granted, token {}", lease.token),
        Answer::Acquire(Ok(Acquired::Held(lease))) => {
            format!("held by {} with token {}", lease.holder, lease.token)
        }
        Answer::Renew(Ok(Renewed::Renewed(lease, None))) => {
            format!("renewed, token {}", lease.token)
        }
        Answer::Renew(Ok(Renewed::Renewed(lease, Some(_)))) => {
            format!("renewed, token {}, and asked to step down", lease.token)
        }
        Answer::Renew(Ok(Renewed::Lost(loss))) => format!("lost: {loss:?}"),
        Answer::Release(Ok(Released::Released)) => "released".into(),
        Answer::Release(Ok(Released::NotHeld)) => "not held, nothing done".into(),
        Answer::Read(Ok(None)) => "nobody holds it".into(),
        Answer::Read(Ok(Some(lease))) => format!("held by {}, token {}", lease.holder, lease.token),
        Answer::Acquire(Err(error))
        | Answer::Renew(Err(error))
        | Answer::Release(Err(error))
        | Answer::Read(Err(error)) => format!("error: {error}"),
    }
}

pub(crate) fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Held(lease) => format!("held by {} with token {}", lease.holder, lease.token),
        Notice::Free => "free".into(),
        _ => "look".into(),
    }
}
