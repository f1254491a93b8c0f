//! Any text as a store URL: refused as invalid on one line, or good; and shown without
//! the password that it was given.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure::ErrorKind;

/// A word that no scheme, host, option name or sentence of ours contains.
const PASSWORD: &str = "QzXjV9";

fuzz_target!(|text: &str| {
    if let Err(error) = tenure_stores::check(text) {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text:?}");
    }
    let _ = tenure_stores::redact(text);

    // The fuzzer learns the word, and elsewhere it is no secret.
    if text.contains(PASSWORD) {
        return;
    }
    // The text is cut in three, to stand around a password in its two usual places.
    let mut parts = text.splitn(3, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let (user, place, options) = (part(), part(), part());
    let as_user = format!("postgres://{}:{PASSWORD}@{place}", user.replace('/', "_"));
    let as_option = format!("postgres://{place}?{options}&password={PASSWORD}");
    for url in [as_user, as_option] {
        let shown = tenure_stores::redact(&url);
        assert!(!shown.contains(PASSWORD), "{url:?} is shown as {shown:?}");
        if let Err(error) = tenure_stores::check(&url) {
            assert!(!error.to_string().contains(PASSWORD), "{url:?}: {error}");
        }
    }
});
