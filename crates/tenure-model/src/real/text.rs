//! The text of a state, the same for two states that no future can tell apart.
//!
//! Moments are written in ticks from the node's now, rounded up, because time goes on in
//! whole ticks. A version is the present one or an old one, a token the number of its
//! tenure. What no decision looks at is left out: numbers of calls, the state of the
//! dice (every wait that they decide ends at the next tick), times for people.

use tenure::{Moment, Token};

/// A tick of the real world, in nanoseconds.
pub(super) const TICK: u64 = 1_000_000_000;

/// What a text is written relative to.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) now: Moment,
    pub(super) version: Option<&'a str>,
    pub(super) granted: &'a [Token],
    /// How far back a moment can matter, in ticks.
    pub(super) past: i64,
    /// Whether the record is watched.
    pub(super) watched: bool,
}

/// Rewrites a debug text relative to its frame.
pub(super) fn relative(text: &str, frame: &Frame<'_>) -> String {
    // The settings and the holder stand first and never change.
    let mut rest = text.find(", rng: ").map_or(text, |at| &text[at..]);
    let mut out = String::with_capacity(rest.len());
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(mark.0)) {
            rest = &rest[mark.0.len()..];
            let end = rest.find(mark.1).unwrap_or(rest.len());
            out.push_str(&(mark.2)(&rest[..end], frame));
            rest = &rest[end..];
        } else {
            // Past the rest of this word, in which no mark begins.
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let next = word.map_or(rest.len(), |at| at.max(1));
            out.push_str(&rest[..next]);
            rest = &rest[next..];
        }
    }
    out.push_str(rest);
    out
}

type Rewrite = fn(&str, &Frame<'_>) -> String;

/// Where something begins, what ends it, and how it is written instead.
const MARKS: [(&str, &str, Rewrite); 13] = [
    ("since: Moment(", ")", seen),
    ("sent: Moment(", ")", past),
    ("progress_at: ", ",", nothing),
    ("Moment(", ")", due),
    ("Token(", ")", token),
    ("version: \"", "\"", version),
    ("ended: Some(\"", "\"", version),
    ("CallId(", ")", nothing),
    ("rng: ", ",", nothing),
    ("calls: ", ",", nothing),
    ("failures: ", ",", nothing),
    ("tenures: ", ",", nothing),
    // From what is left of the term, as it was when the answer was made, to the version.
    ("rest: ", ", version: ", nothing),
];

fn nothing(_: &str, _: &Frame<'_>) -> String {
    String::new()
}

/// Something that is due at this moment: what is past is due now.
fn due(nanos: &str, frame: &Frame<'_>) -> String {
    format!("M{}", ticks(nanos, frame).max(0))
}

/// Something that began at this moment, so long ago.
fn past(nanos: &str, frame: &Frame<'_>) -> String {
    format!("P{}", ticks(nanos, frame).max(-frame.past))
}

fn seen(nanos: &str, frame: &Frame<'_>) -> String {
    if frame.watched {
        past(nanos, frame)
    } else {
        String::new() // A store with a clock does not ask how long its record was watched.
    }
}

fn ticks(nanos: &str, frame: &Frame<'_>) -> i64 {
    let nanos: i64 = nanos.parse().unwrap_or(i64::MAX);
    let from_now = nanos - i64::try_from(frame.now.as_nanos()).unwrap_or(i64::MAX);
    let tick = TICK as i64;
    from_now.div_euclid(tick) + i64::from(from_now.rem_euclid(tick) > 0)
}

fn token(number: &str, frame: &Frame<'_>) -> String {
    let number = number.parse().map(Token);
    let order = frame.granted.iter().position(|known| Ok(*known) == number);
    format!("T{order:?}")
}

fn version(text: &str, frame: &Frame<'_>) -> String {
    let present = Some(text) == frame.version;
    (if present { "present" } else { "old" }).to_owned()
}
