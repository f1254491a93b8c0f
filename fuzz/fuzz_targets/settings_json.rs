//! Any bytes as the JSON of an elector's settings: an error, or settings that can be
//! checked and are what they are again after a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure::{ErrorKind, Key, Settings};

fuzz_target!(|json: &[u8]| {
    let Ok(settings) = serde_json::from_slice::<Settings>(json) else {
        return;
    };
    let text = serde_json::to_string(&settings).expect("settings are JSON");
    let again: Settings = serde_json::from_str(&text).expect("what was written can be read");
    // The fractions of the timing are another target's.
    let again = Settings {
        timing: settings.timing,
        ..again
    };
    assert_eq!(again, settings, "{text}");
    assert!(Key::new(settings.key.as_str()).is_ok());
    if let Err(error) = settings.check() {
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
});
