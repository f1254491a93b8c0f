//! The names that a lease has in Redis: its record, the hash beside it, its channel.

use std::sync::LazyLock;

use tenure::Key;

/// What the names of our own hashes and channels begin with. No prefix of records may.
pub(crate) const OWN: &str = "tenure:";

/// How many slots a Redis Cluster has.
const SLOTS: u16 = 16384;

/// The names of one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// The string that others read too.
    pub record: String,
    /// The hash that only we write, in the record's slot.
    pub beside: String,
    /// Where changes are published.
    pub channel: String,
    /// The record's slot in a Cluster.
    pub slot: u16,
}

impl Names {
    pub(crate) fn new(prefix: &str, key: &Key, database: i64) -> Self {
        let record = format!("{prefix}{key}");
        let beside = beside(&record);
        // Channels are the same in all databases of a server; leases are not.
        let channel = match database {
            0 => beside.clone(),
            number => format!("{beside}@{number}"),
        };
        Self {
            slot: slot(record.as_bytes()),
            record,
            beside,
            channel,
        }
    }
}

/// The name of the hash beside a record: in the same slot, and of no other record.
///
/// Three forms, told apart by the character after `tenure:`, so that no two records
/// share a hash.
fn beside(record: &str) -> String {
    if tag(record.as_bytes()).is_some() {
        // Nothing before the record has a brace, so its own tag stays the first.
        return format!("{OWN}:{record}");
    }
    if !record.contains('}') {
        return format!("{OWN}{{{record}}}");
    }
    // In braces the record would end at its own first one. Some number has the same slot.
    let number = NUMBERS[usize::from(slot(record.as_bytes()))];
    format!("{OWN}#{{{number}}}{record}")
}

/// The smallest number in each slot.
static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut numbers = vec![None; usize::from(SLOTS)];
    let mut missing = numbers.len();
    for number in 0.. {
        let place = &mut numbers[usize::from(slot(number.to_string().as_bytes()))];
        if place.is_none() {
            *place = Some(number);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    numbers.into_iter().flatten().collect()
});

/// The part in braces that alone decides the slot, if there is one.
fn tag(name: &[u8]) -> Option<&[u8]> {
    let open = name.iter().position(|byte| *byte == b'{')?;
    let rest = &name[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// The slot of a name in a Redis Cluster.
pub(crate) fn slot(name: &[u8]) -> u16 {
    crc16(tag(name).unwrap_or(name)) % SLOTS
}

/// CRC16 as Redis Cluster has it (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

/// A text as a pattern of SCAN that fits just this text and whatever follows it.
pub(crate) fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slots_are_those_of_redis() {
        // From the Redis Cluster specification.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    }

    #[test]
    fn every_slot_has_a_number() {
        assert_eq!(NUMBERS.len(), usize::from(SLOTS));
        for (slot, number) in NUMBERS.iter().enumerate() {
            assert_eq!(usize::from(self::slot(number.to_string().as_bytes())), slot);
        }
    }

    #[test]
    fn names_can_be_read() {
        let names = |key: &str| {
            let names = Names::new("app_runtime_leases:", &Key::new(key).unwrap(), 0);
            (names.record, names.beside)
        };
        let record = "app_runtime_leases:jobs/nightly";
        let beside = "tenure:{app_runtime_leases:jobs/nightly}";
        assert_eq!(names("jobs/nightly"), (record.into(), beside.into()));
        let beside = "tenure::app_runtime_leases:{eu}/nightly";
        assert_eq!(names("{eu}/nightly").1, beside);
        let other = Names::new("p:", &Key::new("k").unwrap(), 3);
        assert_eq!(other.channel, "tenure:{p:k}@3");
    }

    #[test]
    fn patterns_fit_their_own_text() {
        assert_eq!(pattern("a*b?c[d]e\\"), "a\\*b\\?c\\[d\\]e\\\\*");
    }

    /// Against the server's own word on the slot.
    #[test]
    fn slots_are_those_that_a_server_names() {
        let options = tenure_testbed::RedisOptions::new().setting("cluster-enabled", "yes");
        let Some(redis) = options.start() else { return };
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 500,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let named = |name: &str| match redis.command(&["CLUSTER", "KEYSLOT", name]) {
            tenure_testbed::Reply::Int(slot) => slot,
            other => panic!("no slot: {other:?}"),
        };
        let names = "app_runtime_leases:[{}a-c/]{1,8}|[{}a:]{1,8}|[^\\x00-\\x1f]{1,40}";
        let checked = runner.run(&names, |record| {
            let slot = i64::from(slot(record.as_bytes()));
            prop_assert_eq!(named(&record), slot);
            prop_assert_eq!(named(&beside(&record)), slot);
            Ok(())
        });
        checked.unwrap();
    }

    proptest! {
        #[test]
        fn the_hash_is_in_the_slot_of_its_record(record in "[{}a-c:]{1,12}|\\PC{1,40}") {
            prop_assert_eq!(slot(beside(&record).as_bytes()), slot(record.as_bytes()));
        }

        #[test]
        fn no_two_records_share_a_hash(one in "[{}:#0-9a]{1,6}", two in "[{}:#0-9a]{1,6}") {
            prop_assert_eq!(one == two, beside(&one) == beside(&two));
        }
    }
}
