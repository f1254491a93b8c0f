//! Names: of schema and table in SQL, and of keys in a column that ignores blanks at the end.

use std::fmt;

use tenure::{Error, Result};

/// What SQL Server can hold of a name, in UTF-16 units.
const NAME_UNITS_MAX: usize = 128;

/// Stands behind a key that ends with a blank. No key has a control character in it, so
/// none is mistaken for another.
const AFTER_BLANK: char = '\u{1f}';

/// A schema and a table in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) schema: String,
    pub(crate) name: String,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            schema: "dbo".into(),
            name: "Leases".into(),
        }
    }
}

impl Table {
    /// Refuses what SQL Server could not hold.
    pub(crate) fn check(&self) -> Result<()> {
        for (what, name) in [("schema", &self.schema), ("table", &self.name)] {
            let units = name.encode_utf16().count();
            let odd = name.chars().any(char::is_control) || name.ends_with(' ');
            if units == 0 || units > NAME_UNITS_MAX || odd {
                return Err(Error::invalid(format!(
                    "the name of the {what} cannot be one: SQL Server takes 1 to {NAME_UNITS_MAX} characters, and we none of control and no blank at the end"
                )));
            }
        }
        Ok(())
    }
}

/// As it stands in SQL: `[dbo].[Leases]`.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// A name as it stands in SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// A text as it stands in SQL.
pub(crate) fn literal(text: &str) -> String {
    format!("N'{}'", text.replace('\'', "''"))
}

/// A key as it stands in `LeaseKey`. SQL Server takes two texts that differ only in
/// blanks at their end for one, in every collation and in a unique index too.
pub(crate) fn stored(key: &str) -> String {
    let mut stored = key.to_owned();
    if key.ends_with(' ') {
        stored.push(AFTER_BLANK);
    }
    stored
}

/// The key that stands there.
pub(crate) fn of_stored(stored: &str) -> &str {
    match stored.strip_suffix(AFTER_BLANK) {
        Some(key) if key.ends_with(' ') => key,
        _ => stored,
    }
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
        assert_eq!(Table::default().to_string(), "[dbo].[Leases]");
        let odd = table("a.b", "x]; DROP TABLE y; --");
        assert_eq!(odd.to_string(), "[a.b].[x]]; DROP TABLE y; --]");
        assert_eq!(literal("it's [x]"), "N'it''s [x]'");
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        assert!(table(&"s".repeat(128), &"🔑".repeat(64)).check().is_ok());
        let long = "🔑".repeat(65);
        for (schema, name) in [
            ("", "t"),
            ("s", ""),
            ("s", &*long),
            ("s", "a\0"),
            ("s", "a "),
        ] {
            let error = table(schema, name).check().unwrap_err();
            assert_eq!(error.kind(), tenure::ErrorKind::Invalid);
        }
    }

    #[test]
    fn blanks_at_the_end_are_kept_apart() {
        for key in ["a", "a ", "a  ", " ", " a", "a\u{3000}"] {
            assert_eq!(of_stored(&stored(key)), key);
            assert!(!stored(key).ends_with(' '));
        }
        assert_eq!(
            stored("billing/nightly"),
            "billing/nightly",
            "word for word"
        );
    }
}
