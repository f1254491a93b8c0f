//! `tenure schema` and `tenure init`: what a store needs before its first use.

use std::time::Duration;

use crate::exit::{Failure, Outcome, STORE};
use crate::output;
use crate::store::Place;

/// How long a server may take to create a table.
const INIT_MAX: Duration = Duration::from_secs(60);

/// Prints what has to be created. No server is asked.
pub fn schema(place: &Place) -> Outcome {
    output::line(place.schema()?.trim_end())?;
    Ok(0)
}

/// Creates it.
pub async fn init(place: &Place) -> Outcome {
    let done = tokio::time::timeout(INIT_MAX, place.init()).await;
    let done = done.map_err(|_| {
        Failure::new(
            STORE,
            "the store did not answer within a minute: see whether it is up, then try again",
        )
    })?;
    output::line(&done?)?;
    Ok(0)
}
