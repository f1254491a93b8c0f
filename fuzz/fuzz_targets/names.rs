//! Any text as a name: taken by the rule of the design and by no other, alike for keys,
//! holders and their JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure::{ErrorKind, Holder, Key, NAME_BYTES_MAX};

fuzz_target!(|name: &str| {
    let good = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name
            .chars()
            .any(|c| matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'));
    let key = Key::new(name);
    let holder = Holder::new(name);
    assert_eq!(key.is_ok(), good, "{name:?}");
    assert_eq!(holder.is_ok(), good, "{name:?}");
    let json = serde_json::to_string(name).expect("every text is JSON");
    assert_eq!(serde_json::from_str::<Key>(&json).is_ok(), good);
    match key {
        Ok(key) => {
            assert_eq!(key.as_str(), name);
            assert_eq!(key.to_string(), name);
            assert_eq!(serde_json::to_string(&key).expect("a key is JSON"), json);
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!error.to_string().contains(char::is_control), "{error}");
        }
    }
});
