//! Names in SQL: quoted rightly, so that any name is one.

use std::fmt;

use tenure::{Error, Result};

/// What PostgreSQL keeps of a name; it would cut the rest off without a word.
const NAME_BYTES_MAX: usize = 63;

/// A schema and a table in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) schema: String,
    pub(crate) name: String,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            schema: "public".into(),
            name: "app_runtime_leases".into(),
        }
    }
}

impl Table {
    /// Refuses what PostgreSQL would cut or could not hold.
    pub(crate) fn check(&self) -> Result<()> {
        for (what, name) in [("schema", &self.schema), ("table", &self.name)] {
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
                return Err(Error::invalid(format!(
                    "the name of the {what} has {} bytes: PostgreSQL can hold 1 to {NAME_BYTES_MAX}",
                    name.len()
                )));
            }
        }
        Ok(())
    }

    /// On which the changes of this table are told. The same for all who use it.
    pub(crate) fn channel(&self) -> String {
        let plain = format!("tenure:{self}");
        match plain.len() <= NAME_BYTES_MAX {
            true => plain,
            false => format!("tenure:{:016x}", fnv_1a(plain.as_bytes())),
        }
    }
}

/// As it stands in SQL: `"public"."app_runtime_leases"`.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// A name as it stands in SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as it stands in SQL, whatever the server thinks of backslashes.
pub(crate) fn literal(text: &str) -> String {
    let quotes = text.replace('\'', "''");
    match quotes.contains('\\') {
        true => format!("E'{}'", quotes.replace('\\', "\\\\")),
        false => format!("'{quotes}'"),
    }
}

/// Stable for ever: processes of different versions have to agree on a channel.
fn fnv_1a(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(start, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: &str, name: &str) -> Table {
        Table {
            schema: schema.into(),
            name: name.into(),
        }
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(
            Table::default().to_string(),
            "\"public\".\"app_runtime_leases\""
        );
        let odd = table("a.b", "x\"; DROP TABLE y; --");
        assert_eq!(odd.to_string(), "\"a.b\".\"x\"\"; DROP TABLE y; --\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
    }

    #[test]
    fn names_that_would_be_cut_are_refused() {
        assert!(table(&"s".repeat(63), &"t".repeat(63)).check().is_ok());
        for (schema, name) in [("", "t"), ("s", ""), ("s", &*"t".repeat(64)), ("s", "a\0b")] {
            let error = table(schema, name).check().unwrap_err();
            assert_eq!(error.kind(), tenure::ErrorKind::Invalid);
        }
    }

    #[test]
    fn each_table_has_a_channel_of_its_own() {
        let usual = Table::default().channel();
        assert_eq!(usual, "tenure:\"public\".\"app_runtime_leases\"");
        assert_ne!(table("a.b", "c").channel(), table("a", "b.c").channel());
        let long = table(&"s".repeat(63), "t").channel();
        // Must never change: others listen there.
        assert_eq!(long, "tenure:c1f75941150613fb");
        assert!(long.len() <= NAME_BYTES_MAX);
        assert_ne!(long, table(&"s".repeat(63), "u").channel());
    }
}
