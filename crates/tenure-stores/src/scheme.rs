//! The schemes of store URLs: those that are here, and those that are to come.

use tenure::{Error, Result};

use crate::redact::redact;

/// A store URL, taken apart and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite {
        path: std::path::PathBuf,
        network_allowed: bool,
    },
}

/// The stores that the design names and that this version does not have.
const TO_COME: [&str; 17] = [
    "postgres",
    "postgresql",
    "redis",
    "rediss",
    "redis+sentinel",
    "redis+cluster",
    "etcd",
    "etcds",
    "s3",
    "gs",
    "az",
    "kubernetes",
    "k8s",
    "sqlserver",
    "mssql",
    "tenure",
    "tenures",
];

const KNOWN: [&str; 2] = ["sqlite", "memory"];

const CHOICE: &str = if cfg!(feature = "sqlite") {
    "sqlite:PATH or memory:"
} else {
    "memory:"
};

impl Place {
    /// Takes the URL apart. Nothing is opened.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once(':') else {
            let shown = crate::redact(url);
            let path = if url.is_empty() { "PATH" } else { &shown };
            return Err(Error::invalid(format!(
                "the store URL \"{shown}\" has no scheme: for a file write sqlite:{path}"
            )));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "memory" => memory(rest),
            "sqlite" => sqlite(rest),
            scheme if TO_COME.contains(&scheme) => Err(Error::invalid(format!(
                "{scheme}: stores are planned and not in this version: choose {CHOICE}"
            ))),
            scheme => Err(unknown(url, scheme)),
        }
    }
}

fn memory(rest: &str) -> Result<Place> {
    if !rest.trim_matches('/').is_empty() {
        return Err(Error::invalid(
            "a memory: store takes nothing after the colon, but there is something: write memory:",
        ));
    }
    Ok(Place::Memory)
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_rest: &str) -> Result<Place> {
    Err(Error::invalid(format!(
        "this build has no sqlite: store (cargo feature \"sqlite\"): choose {CHOICE}"
    )))
}

#[cfg(feature = "sqlite")]
fn sqlite(rest: &str) -> Result<Place> {
    let (path, options) = match rest.split_once('?') {
        Some((path, options)) => (path, Some(options)),
        None => (rest, None),
    };
    // sqlite:///a/b, as others write it.
    let path = match path.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(path) => {
            let shown = crate::redact(path);
            return Err(Error::invalid(format!(
                "sqlite://{shown} names a host, and a file has none: write sqlite:{shown}"
            )));
        }
        None => path,
    };
    if path.is_empty() {
        return Err(Error::invalid(
            "the store URL sqlite: has no path: write sqlite:PATH",
        ));
    }
    // No shell does this behind a colon.
    let path = match path.strip_prefix("~/") {
        Some(path) => crate::home::home()?.join(path),
        None => path.into(),
    };
    let mut network_allowed = false;
    for option in options.iter().flat_map(|options| options.split('&')) {
        match option {
            "network-file-system=allow" => network_allowed = true,
            other => {
                return Err(Error::invalid(format!(
                    "a sqlite: store has no option \"{}\": there is network-file-system=allow",
                    other.split('=').next().unwrap_or(other)
                )));
            }
        }
    }
    Ok(Place::Sqlite {
        path,
        network_allowed,
    })
}

fn unknown(url: &str, scheme: &str) -> Error {
    let nearest = KNOWN
        .iter()
        .chain(&TO_COME)
        .map(|known| (distance(scheme, known), known))
        .min()
        .filter(|(distance, known)| *distance <= 2 && *distance < known.len());
    let hint = match nearest {
        Some((_, known)) => format!("did you mean {known}:? This version knows {CHOICE}"),
        None => format!("this version knows {CHOICE}"),
    };
    let url = redact(url);
    Error::invalid(format!(
        "the store URL \"{url}\" has an unknown scheme: {hint}"
    ))
}

/// How many letters have to change to make one word of the other, where two that
/// changed places count as one.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let changed = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        let error = Place::new(url).unwrap_err();
        assert_eq!(error.kind(), tenure::ErrorKind::Invalid);
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1);
        text
    }

    #[test]
    fn known_urls() {
        assert_eq!(Place::new("memory:").unwrap(), Place::Memory);
        assert_eq!(Place::new("Memory://").unwrap(), Place::Memory);
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_urls() {
        let file = |path: &str, network_allowed| Place::Sqlite {
            path: path.into(),
            network_allowed,
        };
        assert_eq!(Place::new("sqlite:a.db").unwrap(), file("a.db", false));
        assert_eq!(
            Place::new("sqlite:/a/b c:d.db").unwrap(),
            file("/a/b c:d.db", false)
        );
        assert_eq!(Place::new("sqlite:///a.db").unwrap(), file("/a.db", false));
        let url = "sqlite:a.db?network-file-system=allow";
        assert_eq!(Place::new(url).unwrap(), file("a.db", true));
        assert!(refused("sqlite:").contains("sqlite:PATH"));
        assert!(refused("sqlite://a.db").contains("write sqlite:a.db"));
        assert!(refused("sqlite:a.db?mode=ro").contains("\"mode\""));
    }

    #[test]
    fn unknown_schemes_name_the_nearest() {
        assert!(refused("sqlit:a.db").contains("did you mean sqlite:?"));
        assert!(refused("slqite:a.db").contains("did you mean sqlite:?"));
        assert!(refused("memroy:").contains("did you mean memory:?"));
        assert!(refused("postgers://h/d").contains("did you mean postgres:?"));
        let text = refused("ftp://me:hunter2@host/");
        assert!(
            !text.contains("did you mean") && text.contains(CHOICE),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
        assert!(refused("leases.db").contains("sqlite:leases.db"));
        assert!(refused("").contains("sqlite:PATH"));
    }

    #[test]
    fn schemes_to_come_say_so() {
        for scheme in TO_COME {
            let text = refused(&format!("{scheme}://me:hunter2@host/x"));
            assert!(text.contains("not in this version"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
