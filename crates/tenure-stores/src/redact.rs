//! Store URLs as they may be shown: without passwords.

use percent_encoding::percent_decode_str;

const HIDDEN: &str = "***";

/// The URL without what must not be shown or logged: the password of the user part,
/// and the values of options whose names speak of secrets. When in doubt it hides.
///
/// ```
/// use tenure_stores::redact;
/// assert_eq!(redact("postgres://me:hunter2@db/app"), "postgres://me:***@db/app");
/// assert_eq!(redact("redis://host?password=a&prefix=b"), "redis://host?password=***&prefix=b");
/// assert_eq!(redact("sqlite:/var/lib/a.db"), "sqlite:/var/lib/a.db");
/// ```
pub fn redact(url: &str) -> String {
    // The path of a file has no user in it, and no options before the question mark.
    if (url.starts_with("sqlite:") && !url.starts_with("sqlite://")) || url.starts_with("memory:") {
        let (path, options) = url.split_at(url.find('?').unwrap_or(url.len()));
        return format!("{path}{}", redact_options(options));
    }
    let shown = redact_options(url);
    let is_scheme = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        !name.is_empty() && name.chars().all(plain)
    };
    let (scheme, rest) = match url.find("://").filter(|at| is_scheme(&url[..*at])) {
        Some(at) => url.split_at(at + "://".len()),
        None => ("", url),
    };
    // The last at sign: a password may contain others.
    let user = rest.rsplit_once('@').map(|(user, _)| user);
    let Some((name, _)) = user.and_then(|user| user.split_once(':')) else {
        return shown;
    };
    let name = redact_options(name);
    match shown.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}{name}:{HIDDEN}@{place}"),
        // What was hidden as an option has taken the place with it.
        None => format!("{scheme}{name}:{HIDDEN}"),
    }
}

/// Hides the value of each option whose name speaks of a secret, wherever it stands.
fn redact_options(text: &str) -> String {
    text.split_inclusive(['?', '&', ';', ' '])
        .map(redact_option)
        .collect()
}

fn redact_option(option: &str) -> String {
    const SECRET: [&str; 8] = [
        "auth",
        "credential",
        "key",
        "pass",
        "pwd",
        "secret",
        "sig",
        "token",
    ];
    // Files are named in options too, and a path is no secret.
    const PLAIN: [&str; 2] = ["password-file", "tls-key"];
    let Some((name, value)) = option.split_once('=') else {
        return option.to_owned();
    };
    let meant = percent_decode_str(name).decode_utf8_lossy().to_lowercase();
    if PLAIN.contains(&meant.as_str()) || !SECRET.iter().any(|word| meant.contains(word)) {
        return option.to_owned();
    }
    let end = value.chars().last().filter(|c| "?&; ".contains(*c));
    let end = end.map_or(String::new(), String::from);
    format!("{name}={HIDDEN}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for url in [
            "postgres://me:hunter2@db:5432/app?sslmode=require",
            "redis://:hunter2@host",
            "redis://me:hun@ter2hunter2@host/0",
            "etcd://me:hunter2/?#hunter2@a:2379,b:2379?prefix=x",
            "s3://bucket/x?secret_access_key=hunter2&region=eu",
            "sqlserver://host/db?Password=hunter2",
            "postgres://me@db/app?password=hunter2",
            "postgres://me@db/app?p%61ssword=hunter2",
            "redis://host?auth=hunter2",
        ] {
            let shown = redact(url);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains(HIDDEN), "{shown}");
        }
    }

    #[test]
    fn the_rest_is_shown() {
        for url in [
            "memory:",
            "sqlite:/a/b@c.db",
            "postgres://me@db/app?schema=x",
            "etcd://a:2379,b:2379",
            "etcds://a?tls-key=/etc/key.pem&password-file=/run/secrets/etcd",
        ] {
            assert_eq!(redact(url), url);
        }
    }
}
