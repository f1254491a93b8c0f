//! Any bytes as the JSON of a timing: an error, or a timing that can be checked and
//! shown, that is what it is again after a round trip, and whose sum is true.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::arbitrary::{Result as Drawn, Unstructured};
use libfuzzer_sys::fuzz_target;
use tenure::{ErrorKind, Moment, Timing};

/// A timing near where it just holds: chance alone seldom finds one in JSON.
fn near(bytes: &mut Unstructured<'_>) -> Drawn<Timing> {
    let ttl = match bytes.arbitrary()? {
        true => Duration::from_millis(bytes.int_in_range(1..=100_000)?),
        false => Duration::from_nanos(bytes.arbitrary()?),
    };
    let mut part = || -> Drawn<Duration> {
        Ok(ttl.mul_f64(f64::from(bytes.arbitrary::<u16>()?) / f64::from(u16::MAX) / 2.0))
    };
    Ok(Timing {
        ttl,
        renew_every: part()?,
        call_timeout: part()?,
        grace: part()?,
        poll_every: part()?,
        drift: f64::from(bytes.arbitrary::<u8>()?) / 500.0,
        jitter: f64::from(bytes.arbitrary::<u8>()?) / 250.0,
    })
}

fn check(timing: &Timing) {
    match timing.check() {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
        Ok(sum) => {
            let renewal = timing.renew_every.max(timing.call_timeout);
            let needed = renewal + timing.call_timeout + timing.call_timeout;
            assert!(
                needed + timing.grace <= sum.deadline_after,
                "{timing:?} {sum:?}"
            );
            assert!(sum.told_after <= sum.deadline_after, "{timing:?} {sum:?}");
            let sent = Moment::from_nanos(1);
            assert!(timing.deadline(sent) <= sent + timing.ttl, "{timing:?}");
        }
    }
    assert!(!timing.to_string().is_empty());
}

fn round_trip(timing: &Timing) {
    let text = serde_json::to_string(timing).expect("a timing is JSON");
    let again: Timing = serde_json::from_str(&text).expect("what was written can be read");
    // The last bits of a fraction may change on its way through JSON.
    let near = |a: f64, b: f64| (a - b).abs() <= a.abs() * 1e-14 + f64::MIN_POSITIVE;
    assert!(near(timing.drift, again.drift), "{text}");
    assert!(near(timing.jitter, again.jitter), "{text}");
    let again = Timing {
        drift: timing.drift,
        jitter: timing.jitter,
        ..again
    };
    assert_eq!(again, *timing, "{text}");
}

fuzz_target!(|bytes: &[u8]| {
    // No JSON begins with this byte.
    let timing = match bytes.strip_prefix(b"\xff") {
        Some(bytes) => near(&mut Unstructured::new(bytes)).ok(),
        None => serde_json::from_slice(bytes).ok(),
    };
    if let Some(timing) = timing {
        check(&timing);
        round_trip(&timing);
    }
});
