//! Any text as the command's config file: read, or refused with a sentence.
#![no_main]

use libfuzzer_sys::arbitrary::{Result as Drawn, Unstructured};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 22] = [
    "at-least",
    "call-timeout",
    "changes",
    "conflict-exit-code",
    "drift",
    "every",
    "fast",
    "for",
    "format",
    "grace",
    "holder",
    "jitter",
    "limit",
    "log-format",
    "no-wait",
    "poll-every",
    "renew-every",
    "restart",
    "store",
    "ttl",
    "verbose",
    "wait",
];

/// A file with some of the names, each with a value of any kind: chance alone seldom
/// finds one that is TOML.
fn file(bytes: &mut Unstructured<'_>) -> Drawn<String> {
    let mut file = String::new();
    while !bytes.is_empty() {
        let name = *bytes.choose(&NAMES)?;
        let value = match bytes.int_in_range(0..=5)? {
            0 => bytes.arbitrary::<i64>()?.to_string(),
            1 => bytes.arbitrary::<i8>()?.to_string(),
            2 => format!("{:?}", bytes.arbitrary::<f64>()?).to_lowercase(),
            3 => bytes.arbitrary::<bool>()?.to_string(),
            4 => {
                let unit = bytes.choose(&["ns", "ms", "s", "m", "years", ""])?;
                format!("\"{}{unit}\"", bytes.arbitrary::<u64>()?)
            }
            _ => format!(
                "{:?}",
                *bytes.choose(&["json", "text", "token", "memory:", "a"])?
            ),
        };
        file += &format!("{name} = {value}\n");
    }
    Ok(file)
}

fn check(text: &str) {
    if let Err(sentence) = tenure_cli::check_config(text) {
        assert!(!sentence.is_empty(), "{text:?}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    // No text begins with this byte.
    if let Some(bytes) = bytes.strip_prefix(b"\xff") {
        if let Ok(text) = file(&mut Unstructured::new(bytes)) {
            check(&text);
        }
    } else if let Ok(text) = std::str::from_utf8(bytes) {
        check(text);
    }
});
