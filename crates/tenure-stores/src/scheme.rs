//! The schemes of store URLs: those that are here, and those that are to come.

use tenure::{Error, Result};

use crate::place::{Memory, Place};
use crate::redact::redact;

/// A kind of store, by the schemes of its URLs.
struct Kind {
    schemes: &'static [&'static str],
    /// What people write.
    form: &'static str,
    /// The cargo feature that it needs.
    feature: &'static str,
    /// From scheme and rest to a store; none if this build lacks the feature.
    parse: Option<Parse>,
}

type Parse = fn(&str, &str) -> Result<Box<dyn Place>>;

/// The function, if the feature is on.
macro_rules! with {
    ($feature:literal, $parse:expr) => {{
        #[cfg(feature = $feature)]
        {
            Some($parse as Parse)
        }
        #[cfg(not(feature = $feature))]
        {
            None
        }
    }};
}

/// Options that read a whole URL.
#[allow(unused_macros, reason = "a build may leave all servers out")]
macro_rules! url {
    ($options:ty) => {
        |scheme, rest| Ok(Box::new(<$options>::from_url(&format!("{scheme}:{rest}"))?))
    };
}

/// Every store of this version: a new one is a line here.
#[rustfmt::skip]
const KINDS: &[Kind] = &[
    Kind { schemes: &["sqlite"], form: "sqlite:PATH", feature: "sqlite", parse: with!("sqlite", crate::sqlite::Sqlite::parse) },
    Kind { schemes: &["postgres", "postgresql"], form: "postgres://USER@HOST/DATABASE", feature: "postgres", parse: with!("postgres", url!(tenure_postgres::PostgresOptions)) },
    Kind { schemes: &["redis", "rediss", "redis+sentinel", "redis+cluster"], form: "redis://HOST", feature: "redis", parse: with!("redis", url!(tenure_redis::RedisOptions)) },
    Kind { schemes: &["etcd", "etcds"], form: "etcd://HOST,HOST", feature: "etcd", parse: with!("etcd", url!(tenure_etcd::EtcdOptions)) },
    Kind { schemes: &["sqlserver", "mssql"], form: "sqlserver://USER@HOST/DATABASE", feature: "sqlserver", parse: with!("sqlserver", url!(tenure_sqlserver::SqlServerOptions)) },
    Kind { schemes: &["kubernetes", "k8s"], form: "kubernetes://NAMESPACE", feature: "kubernetes", parse: with!("kubernetes", url!(tenure_kubernetes::KubernetesOptions)) },
    Kind { schemes: &["s3", "gs", "az"], form: "s3://BUCKET/PREFIX", feature: "object", parse: with!("object", url!(tenure_object::ObjectOptions)) },
    Kind { schemes: &["memory"], form: "memory:", feature: "", parse: Some(Memory::parse) },
];

/// The stores that the design names and that this version does not have.
const TO_COME: [&str; 2] = ["tenure", "tenures"];

/// Takes the URL apart. Nothing is opened.
pub(crate) fn place(url: &str) -> Result<Box<dyn Place>> {
    let Some((scheme, rest)) = url.split_once(':') else {
        let shown = redact(url);
        let path = if url.is_empty() { "PATH" } else { &shown };
        return Err(Error::invalid(format!(
            "the store URL \"{shown}\" has no scheme: for a file write sqlite:{path}"
        )));
    };
    let scheme = scheme.to_ascii_lowercase();
    if TO_COME.contains(&scheme.as_str()) {
        return Err(Error::invalid(format!(
            "{scheme}: stores are planned and not in this version: choose {}",
            choice()
        )));
    }
    let kind = KINDS
        .iter()
        .find(|kind| kind.schemes.contains(&scheme.as_str()));
    let kind = kind.ok_or_else(|| unknown(url, &scheme))?;
    let parse = kind.parse.ok_or_else(|| {
        Error::invalid(format!(
            "this build has no {scheme}: store (cargo feature \"{}\"): choose {}",
            kind.feature,
            choice()
        ))
    })?;
    parse(&scheme, rest)
}

/// What this build can open, for people.
fn choice() -> String {
    let forms = KINDS.iter().filter(|kind| kind.parse.is_some());
    let forms: Vec<_> = forms.map(|kind| kind.form).collect();
    forms.join(", ").replacen(", memory:", " or memory:", 1)
}

fn unknown(url: &str, scheme: &str) -> Error {
    let nearest = KINDS
        .iter()
        .flat_map(|kind| kind.schemes)
        .chain(&TO_COME)
        .map(|known| (strsim::osa_distance(scheme, known), known))
        .min()
        .filter(|(distance, known)| *distance <= 2 && *distance < known.len());
    let choice = choice();
    let hint = match nearest {
        Some((_, known)) => format!("did you mean {known}:? This version knows {choice}"),
        None => format!("this version knows {choice}"),
    };
    let url = redact(url);
    Error::invalid(format!(
        "the store URL \"{url}\" has an unknown scheme: {hint}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        let error = place(url).unwrap_err();
        assert_eq!(error.kind(), tenure::ErrorKind::Invalid);
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1);
        text
    }

    #[test]
    fn known_urls() {
        for url in ["memory:", "Memory://"] {
            place(url).unwrap();
        }
        #[cfg(feature = "postgres")]
        for scheme in ["postgres", "postgresql", "POSTGRES"] {
            place(&format!("{scheme}://me@host/db")).unwrap();
        }
        #[cfg(feature = "redis")]
        for url in [
            "redis://h",
            "rediss://h",
            "redis+sentinel://h/m",
            "redis+cluster://a,b",
        ] {
            place(url).unwrap();
        }
        #[cfg(feature = "object")]
        for url in ["s3://bucket/prefix", "gs://bucket", "az://container/a/b"] {
            place(url).unwrap();
        }
        #[cfg(feature = "etcd")]
        for url in ["etcd://a:2379,b:2379", "etcds://a"] {
            place(url).unwrap();
        }
        #[cfg(feature = "kubernetes")]
        for url in ["kubernetes://jobs", "k8s://", "K8S://jobs?context=prod"] {
            place(url).unwrap();
        }
    }

    #[cfg(feature = "sqlserver")]
    #[test]
    fn known_sqlserver_urls() {
        for url in ["sqlserver://me@h/db", "mssql://me@h:1434/db?schema=ha"] {
            place(url).unwrap();
        }
    }

    #[test]
    fn unknown_schemes_name_the_nearest() {
        assert!(refused("sqlit:a.db").contains("did you mean sqlite:?"));
        assert!(refused("slqite:a.db").contains("did you mean sqlite:?"));
        assert!(refused("memroy:").contains("did you mean memory:?"));
        assert!(refused("postgers://h/d").contains("did you mean postgres:?"));
        let text = refused("ftp://me:hunter2@host/");
        assert!(
            !text.contains("did you mean") && text.contains(&choice()),
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

    #[test]
    fn a_store_that_was_left_out_of_the_build_says_so() {
        for kind in KINDS.iter().filter(|kind| kind.parse.is_none()) {
            let text = refused(&format!("{}://me:hunter2@host/x", kind.schemes[0]));
            assert!(
                text.contains(kind.feature) && !text.contains("hunter2"),
                "{text}"
            );
        }
    }
}
