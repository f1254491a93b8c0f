//! Measures each store of tenure beside the bare client of its server, turn by turn in one
//! run, on private servers, and prints median, p99 and ratio of both.

mod bare_etcd;
mod bare_postgres;
mod bare_redis;
mod figures;
mod ours;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use figures::{Goal, Report, Samples};
use ours::Ours;
use tenure_testbed::{Etcd, EtcdOptions, Postgres, PostgresOptions, Redis, RedisOptions};

const WAITS: [Duration; 2] = [Duration::from_millis(60), Duration::from_millis(350)];

const USAGE: &str = "usage: bench/stores [--durable] [ROUNDS] [postgres] [redis] [etcd]

Measures acquire+release, renew and handover to a waiter on each store, ROUNDS times (1000
unless given; handovers a tenth of it), by turns with the bare client doing the same round
trips. Servers are private, on loopback; with --durable their writes wait for the disk.";

/// Who is measured: a store of tenure, or the bare client of its server.
#[async_trait]
trait Side {
    /// Takes a lease and frees it.
    async fn acquire_release(&mut self) -> Result<()>;

    /// Renews a lease that is held all along.
    async fn renew(&mut self) -> Result<()>;

    /// From the moment before the release is sent until another, who has waited so long,
    /// knows that it holds the lease.
    async fn handover(&mut self, wait: Duration) -> Result<Duration>;
}

/// The bare client, which also knows its cheapest write.
#[async_trait]
trait Bare: Side {
    /// One write of one key.
    async fn round_trip(&mut self) -> Result<()>;
}

struct Options {
    durable: bool,
    rounds: usize,
    stores: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = options()?;
    let mode = if options.durable {
        "on disk"
    } else {
        "in memory"
    };
    say(&format!(
        "{} rounds, handovers {}; servers on loopback, data {mode}; median and p99 in ms",
        options.rounds,
        options.handovers()
    ));
    for store in &options.stores {
        let report = match store.as_str() {
            "postgres" => postgres(&options).await,
            "redis" => redis(&options).await,
            "etcd" => etcd(&options).await,
            other => bail!("\"{other}\" is no store\n{USAGE}"),
        };
        say(&report.with_context(|| store.clone())?.to_string());
    }
    Ok(())
}

fn options() -> Result<Options> {
    let mut options = Options {
        durable: false,
        rounds: 1000,
        stores: Vec::new(),
    };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--durable" => options.durable = true,
            "-h" | "--help" => {
                say(USAGE);
                std::process::exit(0);
            }
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                let rounds = number.parse().context(USAGE)?;
                options.rounds = usize::clamp(rounds, 10, 100_000);
            }
            store => options.stores.push(store.to_owned()),
        }
    }
    if options.stores.is_empty() {
        options.stores = ["postgres", "redis", "etcd"].map(str::to_owned).to_vec();
    }
    Ok(options)
}

impl Options {
    fn handovers(&self) -> usize {
        self.rounds.div_ceil(10)
    }
}

async fn postgres(options: &Options) -> Result<Report> {
    let mut servers = PostgresOptions::new();
    if options.durable {
        servers = servers.durable();
    }
    let pg: Postgres = servers.start().context("no PostgreSQL to measure with")?;
    let open = || tenure_postgres::PostgresOptions::from_url(&pg.url());
    let holder = tenure_postgres::PostgresStore::open(open()?)?;
    holder.init().await?;
    let waiter = tenure_postgres::PostgresStore::open(open()?)?;
    let bare = bare_postgres::Client::connect(&pg.url()).await?;
    let goal = Goal::BareHandover("one statement, one NOTIFY, one statement");
    measure("PostgreSQL", Ours::new(holder, waiter), bare, options, goal).await
}

async fn redis(options: &Options) -> Result<Report> {
    let mut servers = RedisOptions::new();
    servers = match options.durable {
        true => servers.durable(),
        false => servers.forgetful(),
    };
    let redis: Redis = servers.start().context("no Redis to measure with")?;
    let open = || tenure_redis::RedisOptions::from_url(&redis.url());
    let holder = tenure_redis::RedisStore::open(open()?)?;
    let waiter = tenure_redis::RedisStore::open(open()?)?;
    let bare = bare_redis::Client::connect(&redis.url()).await?;
    let goal = Goal::RoundTrips(2.0, Duration::from_micros(500));
    measure("Redis", Ours::new(holder, waiter), bare, options, goal).await
}

async fn etcd(options: &Options) -> Result<Report> {
    let mut servers = EtcdOptions::new();
    if options.durable {
        servers = servers.durable();
    }
    let etcd: Etcd = servers.start().context("no etcd to measure with")?;
    let open = || tenure_etcd::EtcdOptions::from_url(&etcd.url());
    let holder = tenure_etcd::EtcdStore::open(open()?)?;
    let waiter = tenure_etcd::EtcdStore::open(open()?)?;
    let address = etcd.server().address();
    let bare = bare_etcd::Client::connect(&format!("http://{address}")).await?;
    let goal = Goal::BareHandover("one write, one push, one write");
    measure("etcd", Ours::new(holder, waiter), bare, options, goal).await
}

async fn measure(
    name: &'static str,
    mut ours: Ours,
    mut bare: impl Bare + Send,
    options: &Options,
    goal: Goal,
) -> Result<Report> {
    // Connections, scripts and statements are made on first use.
    for _ in 0..20 {
        ours.acquire_release().await?;
        ours.renew().await?;
        bare.acquire_release().await?;
        bare.renew().await?;
        bare.round_trip().await?;
    }
    let mut report = Report::new(name, goal);
    let mut trips = Samples::default();
    let (mut theirs, mut tenures) = (Samples::default(), Samples::default());
    for _ in 0..options.rounds {
        trips.push(timed(bare.round_trip()).await?);
        theirs.push(timed(bare.acquire_release()).await?);
        tenures.push(timed(ours.acquire_release()).await?);
    }
    report.round_trip(trips);
    report.row("acquire+release", tenures, theirs);
    let (mut theirs, mut tenures) = (Samples::default(), Samples::default());
    for _ in 0..options.rounds {
        theirs.push(timed(bare.renew()).await?);
        tenures.push(timed(ours.renew()).await?);
    }
    report.row("renew", tenures, theirs);
    for wait in WAITS {
        let (mut theirs, mut tenures) = (Samples::default(), Samples::default());
        for _ in 0..options.handovers() {
            theirs.push(bare.handover(wait).await?);
            tenures.push(ours.handover(wait).await?);
        }
        report.handover(wait, tenures, theirs);
    }
    Ok(report)
}

async fn timed(what: impl Future<Output = Result<()>>) -> Result<Duration> {
    let began = now();
    what.await?;
    Ok(began.elapsed())
}

/// A name that nothing before it had.
fn fresh(prefix: &str) -> String {
    tenure_testbed::unique(prefix)
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::print_stdout, reason = "the figures are what this is for")]
fn say(text: &str) {
    println!("{text}");
}
