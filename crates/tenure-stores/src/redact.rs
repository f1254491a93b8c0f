//! Store URLs as they may be shown: without passwords.

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
    let (front, options) = match url.rsplit_once('?') {
        // A question mark in the password does not begin the options.
        Some((front, options)) if !options.contains('@') => (front, Some(options)),
        _ => (url, None),
    };
    let mut shown = redact_user(front);
    if let Some(options) = options {
        let options: Vec<_> = options.split('&').map(redact_option).collect();
        shown.push('?');
        shown.push_str(&options.join("&"));
    }
    shown
}

fn redact_user(front: &str) -> String {
    let Some((scheme, rest)) = front.split_once("://") else {
        return front.to_owned();
    };
    // The last one: a password may contain others.
    let Some((user, place)) = rest.rsplit_once('@') else {
        return front.to_owned();
    };
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:{HIDDEN}@{place}"),
        None => front.to_owned(),
    }
}

fn redact_option(option: &str) -> String {
    const SECRET: [&str; 7] = ["pass", "pwd", "secret", "token", "key", "credential", "sig"];
    match option.split_once('=') {
        Some((name, _)) if SECRET.iter().any(|word| name.to_lowercase().contains(word)) => {
            format!("{name}={HIDDEN}")
        }
        _ => option.to_owned(),
    }
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
        ] {
            assert_eq!(redact(url), url);
        }
    }
}
