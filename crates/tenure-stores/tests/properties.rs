//! Properties of store URLs, for any text: an answer and no panic, files with awkward
//! names, and no password that is shown.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use proptest::prelude::*;
use tenure::ErrorKind;
use tenure_stores::{check, redact};

/// A word that no scheme, host, option name or sentence of ours contains.
const PASSWORD: &str = "QzXjV9";

/// So many cases; the input that fails is printed in its smallest form.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Text of the characters that mean something in a URL, and some that do not.
fn any_url() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(sqlite|SQLite|memory|postgres|sqlit|é|):?/{0,3}[a-z:/?#@&=;.~% \u{7}\né🔑]{0,30}",
    ]
}

/// A path that the form `sqlite:PATH` can say: no question mark, and neither a host nor
/// the home folder at its beginning.
fn awkward_name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 :#@&=;%+~'\"$*\\\\\n\u{7}é鍵🔑.-]{1,24}"
        .prop_filter("a name of a file", |name| name != "." && name != "..")
}

/// All but what would end the part of the URL that it stands in.
fn part() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9.,:_%+=~é-]{0,12}"
}

fn scheme() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
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
        "postgers",
        "ftp",
        "Postgres",
    ])
}

fn secret_option() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "password",
        "Password",
        "pwd",
        "sslpassword",
        "secret_access_key",
        "access_key",
        "AccountKey",
        "session_token",
        "sas_token",
        "sig",
        "client_secret",
        "credentials",
    ])
}

/// Options among which there is no password.
fn options() -> impl Strategy<Value = String> {
    let option = ("[a-fA-F_-]{1,6}", "[a-zA-Z0-9.,:@/?%+é-]{0,8}");
    let option = option.prop_map(|(name, value)| format!("{name}={value}"));
    proptest::collection::vec(option, 0..3).prop_map(|options| options.join("&"))
}

/// Whatever surrounds the password of the user part: more of it, of any characters.
fn password() -> impl Strategy<Value = String> {
    "[a-z0-9:/?#@&=;% é]{0,8}".prop_map(|more| format!("{PASSWORD}{more}{PASSWORD}"))
}

/// URLs with a password in each place where one can stand.
fn url_with_password() -> impl Strategy<Value = String> {
    let in_user = (scheme(), part(), password(), part(), options()).prop_map(
        |(scheme, user, password, place, options)| {
            // A colon in the name would be where the password begins.
            let user = user.replace(':', "");
            format!("{scheme}://{user}:{password}@{place}/x?{options}")
        },
    );
    let in_options = (scheme(), part(), options(), secret_option(), options()).prop_map(
        |(scheme, place, before, name, after)| {
            let options = [&before, &format!("{name}={PASSWORD}"), &after];
            let options = options.map(String::as_str).join("&");
            let options = options.trim_matches('&');
            format!("{scheme}://me@{place}/x?{options}")
        },
    );
    // As other programs write it, and as people forget it.
    let otherwise = (part(), "[a-z0-9.]{1,9}", options()).prop_map(|(user, place, options)| {
        let user = user.replace([':', '='], "");
        vec![
            format!("{user}:{PASSWORD}@{place}/x?{options}"),
            format!("//{user}:{PASSWORD}@{place}/x?{options}"),
            format!("postgres:{user}:{PASSWORD}@{place}/x"),
            format!("host={place} password={PASSWORD} user=me"),
            format!("{place}?password={PASSWORD}&{options}"),
            format!("sqlserver://{place};user=me;password={PASSWORD};x=y"),
            format!("sqlite://{user}:{PASSWORD}@{place}/x"),
        ]
    });
    prop_oneof![
        3 => in_user,
        3 => in_options,
        1 => otherwise.prop_flat_map(proptest::sample::select),
    ]
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn any_text_has_an_answer(url in any_url()) {
        if let Err(error) = check(&url) {
            prop_assert_eq!(error.kind(), ErrorKind::Invalid);
            prop_assert!(!error.to_string().is_empty());
        }
        let _ = redact(&url);
    }

    #[test]
    fn no_password_is_shown(url in url_with_password()) {
        let shown = redact(&url);
        prop_assert!(!shown.contains(PASSWORD), "{} is shown as {}", url, shown);
        // Where its store is built in, some are good URLs.
        if let Err(error) = check(&url) {
            let error = error.to_string();
            prop_assert!(!error.contains(PASSWORD), "{}: {}", url, error);
        }
    }

    #[test]
    fn what_is_no_secret_is_shown(
        scheme in scheme(),
        place in "[a-z0-9.,:-]{0,12}",
        options in "([a-f]{1,6}=[a-z0-9./]{0,8}(&[a-f]{1,6}=[a-z0-9./]{0,8})?)?",
    ) {
        let url = match options.as_str() {
            "" => format!("{scheme}://me@{place}/x"),
            options => format!("{scheme}://me@{place}/x?{options}"),
        };
        prop_assert_eq!(redact(&url), url);
    }
}

#[cfg(feature = "sqlite")]
proptest! {
    // Each case makes a file.
    #![proptest_config(cases(64))]

    #[test]
    fn a_file_of_any_name_is_the_one_that_is_made(name in awkward_name(), slashes in 0..2_usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(&name);
        // sqlite:/a/b and sqlite:///a/b are one place.
        let url = format!("sqlite:{}{}", "//".repeat(slashes), path.display());
        check(&url).unwrap();
        // Behind sqlite:/// a user part might stand: there it hides rather too much.
        if slashes == 0 {
            prop_assert_eq!(redact(&url), url.as_str());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = runtime.block_on(tenure_stores::open(&url)).unwrap();
        prop_assert_eq!(store.traits().name, "sqlite");
        prop_assert!(path.is_file(), "{}", url);
    }
}
