//! `tenure status` and `tenure list`: who holds what, as it is now.

use std::io;

use serde::Serialize;
use tenure::{Key, Store};

use crate::args::{Format, ListArgs, StatusArgs};
use crate::calls;
use crate::config::Config;
use crate::exit::{Failure, Outcome};
use crate::output::{self, LeaseView};

/// One key for programs.
#[derive(Serialize)]
struct KeyView {
    key: String,
    held: bool,
    #[serde(flatten)]
    lease: Option<Held>,
}

/// A lease without its key, which stands beside it.
#[derive(Serialize)]
struct Held {
    holder: String,
    token: u64,
    ttl_ms: u64,
    rest_ms: Option<u64>,
    acquired_at: Option<String>,
    age_ms: Option<u64>,
}

impl From<LeaseView> for Held {
    fn from(view: LeaseView) -> Self {
        Self {
            holder: view.holder,
            token: view.token,
            ttl_ms: view.ttl_ms,
            rest_ms: view.rest_ms,
            acquired_at: view.acquired_at,
            age_ms: view.age_ms,
        }
    }
}

/// What `tenure status` is asked, checked before any store is opened.
#[derive(Debug)]
pub struct Status {
    key: Option<Key>,
    format: Format,
}

impl Status {
    /// Checks the input.
    pub fn new(args: StatusArgs, config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            key: args.key.map(Key::new).transpose()?,
            format: config.format(args.format)?,
        })
    }

    /// Prints one key, or all.
    pub async fn print(self, store: &dyn Store) -> Outcome {
        let Some(key) = self.key else {
            return print_list(store, "", 1000, self.format).await;
        };
        let lease = calls::bounded(store.read(&key)).await?;
        match self.format {
            Format::Json => output::json(&KeyView {
                key: key.to_string(),
                held: lease.is_some(),
                lease: lease.map(|lease| LeaseView::new(&lease).into()),
            })?,
            Format::Text => match &lease {
                Some(lease) => output::line(&output::lines(lease))?,
                None => output::line(&format!("key     {key}\nholder  nobody"))?,
            },
        }
        Ok(0)
    }
}

/// What `tenure list` is asked, checked before any store is opened.
#[derive(Debug)]
pub struct List {
    prefix: String,
    limit: usize,
    format: Format,
}

impl List {
    /// Checks the input.
    pub fn new(args: ListArgs, config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            prefix: args.prefix.unwrap_or_default(),
            limit: config.limit(args.limit)?,
            format: config.format(args.format)?,
        })
    }

    /// Prints the leases.
    pub async fn print(self, store: &dyn Store) -> Outcome {
        print_list(store, &self.prefix, self.limit, self.format).await
    }
}

async fn print_list(store: &dyn Store, prefix: &str, limit: usize, format: Format) -> Outcome {
    // One more than asked for, to know whether there are more.
    let mut leases = calls::bounded(store.list(prefix, limit.saturating_add(1))).await?;
    let more = leases.len() > limit;
    leases.truncate(limit);
    match format {
        Format::Json => {
            let views: Vec<LeaseView> = leases.iter().map(LeaseView::new).collect();
            output::json(&views)?;
        }
        Format::Text if leases.is_empty() => output::line("no key is held")?,
        Format::Text => {
            let colour = output::colour_on(&io::stdout());
            output::line(&output::table(&leases, colour))?;
        }
    }
    if more {
        eprintln!(
            "tenure: there are more than {limit} leases: see the rest with tenure list --limit N"
        );
    }
    Ok(0)
}
