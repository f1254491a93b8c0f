//! What people and programs read on stdout: tables, JSON, colour.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tenure::{BootClock, Clock, Lease};

/// A lease as programs read it.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseView {
    /// What is led.
    pub key: String,
    /// Who has it.
    pub holder: String,
    /// The fencing token.
    pub token: u64,
    /// The length of a term.
    pub ttl_ms: u64,
    /// The rest of the term; unknown on a store without a clock.
    pub rest_ms: Option<u64>,
    /// When this tenure began.
    pub acquired_at: Option<String>,
    /// How long ago that was.
    pub age_ms: Option<u64>,
}

impl LeaseView {
    /// The lease as it is now.
    pub fn new(lease: &Lease) -> Self {
        let age = lease.acquired_at.map(age);
        Self {
            key: lease.key.to_string(),
            holder: lease.holder.to_string(),
            token: lease.token.0,
            ttl_ms: millis(lease.ttl),
            rest_ms: lease.rest.map(millis),
            acquired_at: lease.acquired_at.map(wall_text),
            age_ms: age.map(millis),
        }
    }
}

fn age(since: SystemTime) -> Duration {
    // Wall time is for people: a clock that was set back shows as zero.
    BootClock.wall().duration_since(since).unwrap_or_default()
}

/// A duration in whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A point in wall time as programs and people read it.
pub fn wall_text(time: SystemTime) -> String {
    // Beyond the year 9999 the formatter would refuse, and a broken clock is no reason to.
    let latest = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_millis(time.min(latest)).to_string()
}

/// Wall time now.
pub fn wall_now() -> String {
    wall_text(BootClock.wall())
}

/// A duration as people read it: two units at most.
pub fn show(duration: Duration) -> String {
    let rounded = if duration >= Duration::from_secs(10) {
        Duration::from_secs(duration.as_secs())
    } else {
        Duration::from_millis(millis(duration) / 100 * 100)
    };
    let text = humantime::format_duration(rounded).to_string();
    let units: Vec<&str> = text.split(' ').take(2).collect();
    units.join(" ")
}

/// Whether colour is welcome there: on a terminal, and without NO_COLOR.
pub fn colour_on(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !refused && !dumb
}

/// Text in a colour, where colour is welcome.
pub fn paint(text: &str, code: &str, on: bool) -> String {
    if on {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Writes one JSON value on a line of its own.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}

/// Writes a line of text.
pub fn line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// The leases as a table with aligned columns.
pub fn table(leases: &[Lease], colour: bool) -> String {
    let header = ["KEY", "HOLDER", "TOKEN", "AGE", "REST"].map(str::to_owned);
    let mut rows = vec![header];
    rows.extend(leases.iter().map(row));
    let widths: Vec<usize> = (0..5)
        .map(|column| rows.iter().map(|r| width(&r[column])).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (c, w))| {
            let gap = if column == 4 { 0 } else { w - width(c) };
            format!("{c}{}", " ".repeat(gap))
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&paint(&line, "1", colour && number == 0));
        text.push('\n');
    }
    text.pop();
    text
}

fn row(lease: &Lease) -> [String; 5] {
    let unknown = || "?".to_owned();
    [
        lease.key.to_string(),
        lease.holder.to_string(),
        lease.token.to_string(),
        lease.acquired_at.map_or_else(unknown, |at| show(age(at))),
        lease.rest.map_or_else(unknown, show),
    ]
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// The lease as a few aligned lines.
pub fn lines(lease: &Lease) -> String {
    let [key, holder, token, age, rest] = row(lease);
    let since = lease
        .acquired_at
        .map(|at| format!(" (since {})", wall_text(at)));
    format!(
        "key     {key}\nholder  {holder}\ntoken   {token}\nage     {age}{}\nrest    {rest} of {}",
        since.unwrap_or_default(),
        humantime::format_duration(lease.ttl),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let cases = [
            (0, "0s"),
            (1_234, "1s 200ms"),
            (29_999, "29s"),
            (3_723_000, "1h 2m"),
        ];
        for (ms, text) in cases {
            assert_eq!(show(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn no_colour_means_no_codes() {
        assert_eq!(paint("x", "1", false), "x");
        assert!(paint("x", "1", true).contains('\x1b'));
    }
}
