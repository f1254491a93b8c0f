//! What has to be there before the first lease: a table with the article's columns and ours.

use tenure::{Error, Result};
use tiberius::{ColumnData, Row};

use crate::names::{literal, quoted};
use crate::options::SqlServerOptions;
use crate::pool::Pool;

/// Our columns, beside the article's: each may be left out by its statements.
const OWN_COLUMNS: [(&str, &str); 6] = [
    ("Token", "bigint NOT NULL DEFAULT 0"),
    ("TenureUntil", "datetime2(3) NULL"),
    ("TenureAttempt", "bigint NULL"),
    ("TenureTtlNs", "bigint NULL"),
    ("TenureSince", "datetime2(3) NULL"),
    ("TenureRequest", "nvarchar(40) NULL"),
];

/// The columns that the article knows.
const SHARED_COLUMNS: [&str; 3] = ["LeaseKey", "OwnerId", "ExpiresAtUtc"];

/// What a person runs as the owner of the database or of the schema.
pub(crate) fn text(options: &SqlServerOptions) -> String {
    let table = &options.table;
    let (user, hint) = match options.user.as_deref().map(quoted) {
        Some(user) => (user, ""),
        None => ("[app]".into(), " -- the user that takes leases"),
    };
    let mut text = String::from("-- Run this as a user who owns the table or may create it.\n");
    text += &create(options);
    for (name, _) in OWN_COLUMNS {
        text += &add(options, name);
    }
    text += &format!("GRANT SELECT, INSERT, UPDATE ON {table} TO {user};{hint}\n");
    text
}

fn create(options: &SqlServerOptions) -> String {
    let table = &options.table;
    let make_schema = literal(&format!("CREATE SCHEMA {}", quoted(&table.schema)));
    let (schema, name) = (literal(&table.schema), literal(&table.to_string()));
    // Names are compared unit by unit, and the longest have room. No clustered index can
    // hold them (900 bytes), so it is one beside the table (1700).
    format!(
        "IF SCHEMA_ID({schema}) IS NULL EXEC({make_schema});
IF OBJECT_ID({name}, N'U') IS NULL CREATE TABLE {table} (
  LeaseKey nvarchar(520) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED,
  OwnerId nvarchar(520) COLLATE Latin1_General_BIN2 NOT NULL,
  ExpiresAtUtc datetime2(3) NOT NULL
);
"
    )
}

fn add(options: &SqlServerOptions, column: &str) -> String {
    let table = &options.table;
    let (name, of) = (literal(column), literal(&table.to_string()));
    let kind = OWN_COLUMNS.iter().find(|(name, _)| *name == column);
    let kind = kind.map_or("", |(_, kind)| kind);
    format!("IF COL_LENGTH({of}, {name}) IS NULL ALTER TABLE {table} ADD {column} {kind};\n")
}

/// Makes what is missing, and says what that was.
pub(crate) async fn init(options: &SqlServerOptions, pool: &Pool) -> Result<String> {
    let table = &options.table;
    let before = columns(options, pool).await?;
    if before.is_empty()
        && let Err(error) = pool.run(&create(options)).await
        // Somebody else may have made it at this very moment.
        && columns(options, pool).await?.is_empty()
    {
        return Err(error);
    }
    check(options, &columns(options, pool).await?)?;
    let lacking = missing(&columns(options, pool).await?);
    for column in &lacking {
        if let Err(error) = pool.run(&add(options, column)).await
            && missing(&columns(options, pool).await?).contains(column)
        {
            return Err(error);
        }
    }
    let after = columns(options, pool).await?;
    let mut said = match (before.is_empty(), lacking.is_empty()) {
        (true, _) => format!("Created the table {table}."),
        (false, true) => format!("The table {table} has all that is needed: nothing to do."),
        (false, false) => format!("Added {} to the table {table}.", lacking.join(", ")),
    };
    let key = after.iter().find(|column| column.name == "LeaseKey");
    if let Some(collation) = key.and_then(|key| key.collation.as_deref())
        && !collation.to_ascii_uppercase().contains("_BIN")
    {
        said += &format!(
            " Its LeaseKey has the collation {collation}: keys that differ only in case or accents are refused there."
        );
    }
    Ok(said)
}

/// A table that cannot hold leases is refused before anything is added to it.
fn check(options: &SqlServerOptions, found: &[Column]) -> Result<()> {
    let table = &options.table;
    for name in SHARED_COLUMNS {
        let Some(column) = found.iter().find(|column| column.name == name) else {
            return Err(Error::misconfigured(format!(
                "the table {table} has no column {name}, so it is no table of leases: choose another with table=NAME"
            )));
        };
        let (fits, wanted) = match name {
            "ExpiresAtUtc" => (
                column.kind == "datetime2" && column.scale >= 3,
                "datetime2(3)",
            ),
            _ => (column.kind == "nvarchar", "nvarchar"),
        };
        if !fits {
            return Err(Error::misconfigured(format!(
                "the column {name} of {table} is a {}({}): make it {wanted}, or choose another table with table=NAME",
                column.kind, column.scale
            )));
        }
    }
    Ok(())
}

fn missing(found: &[Column]) -> Vec<&'static str> {
    let lacks = |name: &&'static str| !found.iter().any(|column| column.name == *name);
    OWN_COLUMNS
        .map(|(name, _)| name)
        .into_iter()
        .filter(lacks)
        .collect()
}

/// One column as the server describes it.
struct Column {
    name: String,
    kind: String,
    scale: i64,
    collation: Option<String>,
}

/// The columns that the table has; none if there is no such table.
async fn columns(options: &SqlServerOptions, pool: &Pool) -> Result<Vec<Column>> {
    let batch = "SELECT CONVERT(nvarchar(128), c.name) AS Name, CONVERT(nvarchar(128), TYPE_NAME(c.system_type_id)) AS Kind,
  CONVERT(int, c.scale) AS Scale, CONVERT(nvarchar(128), c.collation_name) AS Collation
FROM sys.columns AS c WHERE c.object_id = OBJECT_ID(@P1, N'U');";
    let name = options.table.to_string();
    let rows = pool.query(batch, &[&name]).await?;
    Ok(rows.iter().map(Column::read).collect())
}

impl Column {
    fn read(row: &Row) -> Self {
        let mut cells = row.cells().map(|(_, cell)| cell);
        let mut text = || match cells.next() {
            Some(ColumnData::String(Some(text))) => Some(text.clone().into_owned()),
            Some(ColumnData::I32(Some(number))) => Some(number.to_string()),
            Some(ColumnData::I64(Some(number))) => Some(number.to_string()),
            _ => None,
        };
        let (name, kind, scale) = (text(), text(), text());
        Self {
            name: name.unwrap_or_default(),
            kind: kind.unwrap_or_default(),
            scale: scale.and_then(|scale| scale.parse().ok()).unwrap_or(0),
            collation: text(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_can_be_run_by_people() {
        let options = SqlServerOptions::from_url("sqlserver://app@h/db?schema=h%27a&table=x%5Dy");
        let text = options.unwrap().schema();
        for line in [
            "IF SCHEMA_ID(N'h''a') IS NULL EXEC(N'CREATE SCHEMA [h''a]');",
            "IF OBJECT_ID(N'[h''a].[x]]y]', N'U') IS NULL CREATE TABLE [h'a].[x]]y] (",
            "IF COL_LENGTH(N'[h''a].[x]]y]', N'Token') IS NULL ALTER TABLE [h'a].[x]]y] ADD Token bigint NOT NULL DEFAULT 0;",
            "GRANT SELECT, INSERT, UPDATE ON [h'a].[x]]y] TO [app];",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("DELETE"), "nobody needs to delete");
    }
}
