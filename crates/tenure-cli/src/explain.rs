//! `tenure explain`: what a timing means.

use serde::Serialize;
use tenure::{Timing, TimingSum};

use crate::args::{ExplainArgs, Format};
use crate::config::Config;
use crate::exit::Outcome;
use crate::output;

#[derive(Serialize)]
struct Explained {
    timing: Timing,
    sum: TimingSum,
}

/// Prints the sum of a timing that can hold; one that cannot is refused with it.
pub fn explain(mut args: ExplainArgs, config: &Config) -> Outcome {
    config.fill_timing(&mut args.timing)?;
    let timing = args.timing.timing();
    let sum = timing.check()?;
    match config.format(args.format)? {
        Format::Json => output::json(&Explained { timing, sum })?,
        Format::Text => output::line(&timing.to_string())?,
    }
    Ok(0)
}
