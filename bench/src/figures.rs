//! Samples, and the table that is printed of them.

use std::fmt;
use std::time::Duration;

/// How long one thing took, many times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

/// What a handover is to be compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// So many bare round trips and this much.
    RoundTrips(f64, Duration),
    /// The same steps by the bare client.
    BareHandover(&'static str),
}

/// All figures of one store.
#[derive(Debug)]
pub(crate) struct Report {
    store: &'static str,
    goal: Goal,
    trips: Samples,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    what: String,
    ours: Samples,
    bare: Samples,
    is_handover: bool,
}

/// Renewals may take so many times as long as the bare round trip.
const RENEW_RATIO_MAX: f64 = 1.1;

impl Samples {
    pub(crate) fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    fn quantile_ms(&self, quantile: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        let last = sorted.len().saturating_sub(1);
        let index = (last as f64 * quantile).ceil() as usize;
        sorted
            .get(index)
            .map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }

    fn median_ms(&self) -> f64 {
        self.quantile_ms(0.5)
    }

    fn p99_ms(&self) -> f64 {
        self.quantile_ms(0.99)
    }
}

impl Report {
    pub(crate) fn new(store: &'static str, goal: Goal) -> Self {
        Self {
            store,
            goal,
            trips: Samples::default(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn round_trip(&mut self, trips: Samples) {
        self.trips = trips;
    }

    pub(crate) fn row(&mut self, what: &str, ours: Samples, bare: Samples) {
        self.rows.push(Row {
            what: what.to_owned(),
            ours,
            bare,
            is_handover: false,
        });
    }

    pub(crate) fn handover(&mut self, wait: Duration, ours: Samples, bare: Samples) {
        self.rows.push(Row {
            what: format!("handover, waited {} ms", wait.as_millis()),
            ours,
            bare,
            is_handover: true,
        });
    }

    fn goals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let (ours, bare) = (row.ours.median_ms(), row.bare.median_ms());
            if row.what == "renew" {
                let limit = bare * RENEW_RATIO_MAX;
                goal(
                    f,
                    &format!("renew within {RENEW_RATIO_MAX} times the bare one"),
                    ours,
                    limit,
                )?;
            }
            if !row.is_handover {
                continue;
            }
            match self.goal {
                Goal::RoundTrips(count, more) => {
                    let limit = self.trips.median_ms() * count + more.as_secs_f64() * 1e3;
                    let more = more.as_secs_f64() * 1e3;
                    let text = format!("{}: {count} bare round trips and {more} ms", row.what);
                    goal(f, &text, ours, limit)?;
                }
                Goal::BareHandover(steps) => {
                    let text = format!("{}: {steps}, as the bare client does them", row.what);
                    goal(f, &text, ours, bare)?;
                }
            }
        }
        Ok(())
    }
}

fn goal(f: &mut fmt::Formatter<'_>, text: &str, ours: f64, limit: f64) -> fmt::Result {
    let more = ours - limit;
    if more <= 0.0 {
        writeln!(f, "  met     {text}: {ours:.3} of {limit:.3} ms")
    } else {
        writeln!(
            f,
            "  missed  {text}: {ours:.3} of {limit:.3} ms, {more:.3} more"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (store, trips) = (self.store, &self.trips);
        writeln!(
            f,
            "\n{store:<24} {:>17}  {:>17}  {:>13}",
            "tenure", "bare client", "ratio"
        )?;
        writeln!(
            f,
            "{:<24} {:>8} {:>8}  {:>8} {:>8}  {:>6} {:>6}",
            "", "median", "p99", "median", "p99", "median", "p99"
        )?;
        let (median, p99) = (trips.median_ms(), trips.p99_ms());
        writeln!(
            f,
            "{:<24} {:>8} {:>8}  {median:>8.3} {p99:>8.3}",
            "one write of one key", "", ""
        )?;
        for Row {
            what, ours, bare, ..
        } in &self.rows
        {
            let (m, p) = (ours.median_ms(), ours.p99_ms());
            let (bm, bp) = (bare.median_ms(), bare.p99_ms());
            writeln!(
                f,
                "{what:<24} {m:>8.3} {p:>8.3}  {bm:>8.3} {bp:>8.3}  {:>6.2} {:>6.2}",
                m / bm,
                p / bp
            )?;
        }
        self.goals(f)
    }
}
