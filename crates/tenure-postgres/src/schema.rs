//! What has to be there before the first lease: a table with HAMode's five columns and ours.

use tenure::{Error, Result};
use tokio_postgres::types::Type;

use crate::failure::Place;
use crate::names::quoted;
use crate::options::PostgresOptions;
use crate::source::Source;

/// Our columns, beside HAMode's: all may be NULL, so that its statements work as before.
const OWN_COLUMNS: [(&str, &str); 4] = [
    ("tenure_version", "bigint"),
    ("tenure_attempt", "bigint"),
    ("tenure_ttl_ns", "bigint"),
    ("tenure_request", "text"),
];

/// The columns that HAMode knows.
const SHARED_COLUMNS: [&str; 5] = [
    "lease_name",
    "holder_id",
    "version",
    "acquired_at_utc",
    "expires_at_utc",
];

/// What a person runs as the table's owner.
pub(crate) fn text(options: &PostgresOptions) -> String {
    let (table, schema) = (&options.table, quoted(&options.table.schema));
    let role = options.user.as_deref().map(quoted);
    let (role, hint) = match role {
        Some(role) => (role, ""),
        None => ("app".into(), " -- the role that takes leases"),
    };
    let mut text = String::from("-- Run this as a role that owns the table or may create it.\n");
    text += &create(options);
    for (name, kind) in OWN_COLUMNS {
        text += &format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} {kind};\n");
    }
    text += &format!("GRANT USAGE ON SCHEMA {schema} TO {role};{hint}\n");
    text += &format!("GRANT SELECT, INSERT, UPDATE ON {table} TO {role};\n");
    text
}

fn create(options: &PostgresOptions) -> String {
    let (table, schema) = (&options.table, quoted(&options.table.schema));
    let create_schema = match options.table.schema.as_str() {
        "public" => String::new(),
        _ => format!("CREATE SCHEMA IF NOT EXISTS {schema};\n"),
    };
    // Names are compared and sorted byte by byte; room in each page for renewals.
    format!(
        "{create_schema}CREATE TABLE IF NOT EXISTS {table} (
  lease_name text COLLATE \"C\" PRIMARY KEY,
  holder_id text NOT NULL,
  version bigint NOT NULL,
  acquired_at_utc timestamptz NOT NULL,
  expires_at_utc timestamptz NOT NULL
) WITH (fillfactor = 70);
"
    )
}

/// Makes what is missing, and says what that was.
pub(crate) async fn init(
    options: &PostgresOptions,
    source: &Source,
    place: &Place,
) -> Result<String> {
    let table = &options.table;
    let found = columns(options, source, place).await?;
    if found.is_empty() {
        let make = format!("{}{}", create(options), add(options, &[]));
        // Somebody else may be making it at this very moment.
        if let Err(error) = source.run_batch(place, &make).await
            && missing(&columns(options, source, place).await?).len() == OWN_COLUMNS.len()
        {
            return Err(error);
        }
    }
    let found_now = columns(options, source, place).await?;
    for name in SHARED_COLUMNS {
        if !found_now.iter().any(|found| found == name) {
            return Err(Error::misconfigured(format!(
                "the table {table} has no column {name}, so it is no table of leases: choose another with table=NAME"
            )));
        }
    }
    let lacking = missing(&found_now);
    if !lacking.is_empty() {
        source.run_batch(place, &add(options, &found_now)).await?;
    }
    Ok(match (found.is_empty(), lacking.is_empty()) {
        (true, _) => format!("Created the table {table}."),
        (false, true) => format!("The table {table} has all that is needed: nothing to do."),
        (false, false) => format!("Added {} to the table {table}.", lacking.join(", ")),
    })
}

fn missing(found: &[String]) -> Vec<&'static str> {
    let lacks = |name: &&'static str| !found.iter().any(|found| found == name);
    OWN_COLUMNS
        .map(|(name, _)| name)
        .into_iter()
        .filter(lacks)
        .collect()
}

fn add(options: &PostgresOptions, found: &[String]) -> String {
    let lacking = missing(found);
    OWN_COLUMNS
        .iter()
        .filter(|(name, _)| lacking.contains(name))
        .map(|(name, kind)| {
            let table = &options.table;
            format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} {kind};\n")
        })
        .collect()
}

/// The columns that the table has; none if there is no such table.
async fn columns(options: &PostgresOptions, source: &Source, place: &Place) -> Result<Vec<String>> {
    let statement = "SELECT a.attname::text FROM pg_attribute AS a
         WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";
    let name = options.table.to_string();
    let rows = source.run(place, statement, &[(&name, Type::TEXT)]).await?;
    rows.iter()
        .map(|row| row.try_get(0).map_err(|error| place.of_statement(&error)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_can_be_run_by_people() {
        let options = PostgresOptions::from_url("postgres://app@h/db?schema=ha&table=x%22y");
        let text = options.unwrap().schema();
        for line in [
            "CREATE SCHEMA IF NOT EXISTS \"ha\";",
            "CREATE TABLE IF NOT EXISTS \"ha\".\"x\"\"y\" (",
            "ALTER TABLE \"ha\".\"x\"\"y\" ADD COLUMN IF NOT EXISTS tenure_request text;",
            "GRANT USAGE ON SCHEMA \"ha\" TO \"app\";",
            "GRANT SELECT, INSERT, UPDATE ON \"ha\".\"x\"\"y\" TO \"app\";",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("DELETE"), "nobody needs to delete");
    }
}
