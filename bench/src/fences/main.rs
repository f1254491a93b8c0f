//! Measures the same write with and without its fence, turn by turn in one run, and prints
//! median, p99 and ratio of both.

mod databases;
mod others;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use tenure::{Elector, MemoryStore, Settings, Tenure};

const USAGE: &str =
    "usage: bench/fences [ROUNDS] [postgres] [sqlite] [redis] [object] [http] [file]

Makes the same write with and without its fence by turns, ROUNDS times each (500 unless
given), on private servers on loopback. Durable ones wait for the disk.";

/// A write, with and without its fence.
#[async_trait]
trait Pair: Send {
    /// What is written, for the table.
    fn what(&self) -> &'static str;

    async fn bare(&mut self) -> Result<()>;

    async fn fenced(&mut self, tenure: &Tenure) -> Result<()>;
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut rounds = 500;
    let mut wanted = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "-h" | "--help" => {
                say(USAGE);
                return Ok(());
            }
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                rounds = usize::clamp(number.parse().context(USAGE)?, 10, 100_000);
            }
            name => wanted.push(name.to_owned()),
        }
    }
    if wanted.is_empty() {
        let all = ["postgres", "sqlite", "redis", "object", "http", "file"];
        wanted = all.map(str::to_owned).to_vec();
    }
    let elector = Elector::start(MemoryStore::new(), Settings::new("bench")?)?;
    let tenure = elector.elected().await?;
    say(&format!("{rounds} rounds by turns; median and p99 in ms\n"));
    say(&format!(
        "{:<36} {:>17}  {:>17}  {:>7}",
        "", "with its fence", "without", "ratio"
    ));
    for name in wanted {
        let pairs = match name.as_str() {
            "postgres" => databases::postgres().await,
            "sqlite" => databases::sqlite(),
            "redis" => databases::redis().await,
            "object" => others::object().await,
            "http" => others::http().await,
            "file" => others::file(),
            other => bail!("\"{other}\" is no resource\n{USAGE}"),
        };
        let pairs = pairs.with_context(|| name.clone())?;
        if pairs.is_empty() {
            say(&format!("{name}: not measured"));
        }
        for mut pair in pairs {
            measure(&mut *pair, &tenure, rounds)
                .await
                .with_context(|| name.clone())?;
        }
    }
    elector.stop().await;
    Ok(())
}

async fn measure(pair: &mut dyn Pair, tenure: &Tenure, rounds: usize) -> Result<()> {
    // Connections, scripts and files are made on first use.
    for _ in 0..10 {
        pair.bare().await?;
        pair.fenced(tenure).await?;
    }
    let (mut bare, mut fenced) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = now();
        pair.bare().await?;
        bare.push(began.elapsed());
        let began = now();
        pair.fenced(tenure).await?;
        fenced.push(began.elapsed());
    }
    bare.sort();
    fenced.sort();
    let (with, without) = (quantile(&fenced, 0.5), quantile(&bare, 0.5));
    say(&format!(
        "{:<36} {with:>8.3} {:>8.3}  {without:>8.3} {:>8.3}  {:>7.2}",
        pair.what(),
        quantile(&fenced, 0.99),
        quantile(&bare, 0.99),
        with / without
    ));
    Ok(())
}

/// In milliseconds, of samples in order.
fn quantile(samples: &[Duration], quantile: f64) -> f64 {
    let last = samples.len().saturating_sub(1);
    let index = (last as f64 * quantile).ceil() as usize;
    let sample = samples.get(index).copied().unwrap_or_default();
    sample.as_secs_f64() * 1e3
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::print_stdout, reason = "the figures are what this is for")]
fn say(text: &str) {
    println!("{text}");
}
