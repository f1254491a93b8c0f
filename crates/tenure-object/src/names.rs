//! From a key to the name of its object and back: one name for each key, one key for each name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tenure::Key;

/// What the name of every lease ends with.
const SUFFIX: &str = ".json";
/// What a name begins with that is too long to be read: the key in base64, cut into parts.
const LONG: &str = "%_/";
/// The longest part between two slashes: file systems below some services end at 255 bytes.
const PART_BYTES_MAX: usize = 200;
/// The longest readable name. Services end at 1024 bytes, and a prefix comes before it.
const NAME_BYTES_MAX: usize = 600;

/// The name of the object of this key, without the store's prefix: `billing/nightly.json`.
///
/// Letters, digits, `-`, `_` and `.` stand for themselves, as do slashes between parts;
/// every other byte is a percent sign and two digits.
pub(crate) fn name(key: &Key) -> String {
    let plain = format!("{}{SUFFIX}", readable(key.as_str()));
    let fits = |part: &str| part.len() <= PART_BYTES_MAX;
    if plain.len() <= NAME_BYTES_MAX && plain.split('/').all(fits) {
        return plain;
    }
    let mut long = LONG.to_owned();
    let encoded = URL_SAFE_NO_PAD.encode(key.as_str());
    for (index, c) in encoded.chars().enumerate() {
        if index > 0 && index % PART_BYTES_MAX == 0 {
            long.push('/');
        }
        long.push(c);
    }
    long + SUFFIX
}

/// The key of this object, if the name is one that [`name`] makes.
pub(crate) fn key(object: &str) -> Option<Key> {
    let text = object.strip_suffix(SUFFIX)?;
    let bytes = match text.strip_prefix(LONG) {
        Some(long) => URL_SAFE_NO_PAD.decode(long.replace('/', "")).ok()?,
        None => percent_encoding::percent_decode_str(text).collect(),
    };
    let key = Key::new(String::from_utf8(bytes).ok()?).ok()?;
    (name(&key) == object).then_some(key)
}

fn readable(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    let bytes = key.as_bytes();
    let mut part_begins = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let last = at + 1 == bytes.len();
        let part = &bytes[part_begins..];
        let part_length = part.iter().position(|b| *b == b'/').unwrap_or(part.len());
        let part = &part[..part_length];
        let plain = match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => true,
            // A part of dots means another folder, and a folder must not look like a lease.
            b'.' => {
                let is_folder = part_begins + part.len() < bytes.len();
                let looks_like_lease = is_folder && part.ends_with(SUFFIX.as_bytes());
                part.iter().any(|b| *b != b'.') && !looks_like_lease
            }
            // Between two parts; elsewhere it would make an empty one.
            b'/' => at > part_begins && !last,
            _ => false,
        };
        if plain {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        if byte == b'/' {
            part_begins = at + 1;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> String {
        name(&Key::new(text).unwrap())
    }

    #[test]
    fn names_can_be_read() {
        for (key, object) in [
            ("billing/nightly", "billing/nightly.json"),
            ("leader-lock", "leader-lock.json"),
            ("a.b", "a.b.json"),
            ("a b", "a%20b.json"),
            ("50%", "50%25.json"),
            ("a/", "a%2F.json"),
            ("/a", "%2Fa.json"),
            ("a//b", "a/%2Fb.json"),
            ("..", "%2E%2E.json"),
            ("a/../b", "a/%2E%2E/b.json"),
            ("x.json/y", "x%2Ejson/y.json"),
            ("x.json", "x.json.json"),
            ("é", "%C3%A9.json"),
        ] {
            assert_eq!(of(key), object);
        }
    }

    #[test]
    fn long_keys_have_short_parts() {
        for key in ["x".repeat(512), "🔑".repeat(128), "a/".repeat(256)] {
            let object = of(&key);
            assert!(object.len() <= 700, "{}", object.len());
            assert!(object.split('/').all(|p| !p.is_empty() && p.len() <= 205));
            assert_eq!(super::key(&object).unwrap().as_str(), key);
        }
    }

    #[test]
    fn other_objects_are_no_leases() {
        for object in [
            "a",
            "a.txt",
            ".json",
            "a%2.json",
            "a%2f.json",
            "a b.json",
            "%_/.json",
            "%41.json",
        ] {
            assert_eq!(key(object), None, "{object}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(text in "[\\PC]{1,120}|[./a%]{1,40}|(x\\.json|\\.|/){1,9}") {
            prop_assume!(text.len() <= 512);
            let key = Key::new(&text).unwrap();
            let object = name(&key);
            prop_assert_eq!(super::key(&object), Some(key));
            prop_assert!(object_store::path::Path::parse(&object).is_ok_and(|p| p.as_ref() == object));
            // No lease lies in a folder that has the name of a lease.
            let folders = object.rsplit_once('/').map_or("", |(folders, _)| folders);
            prop_assert!(folders.split('/').all(|folder| !folder.ends_with(SUFFIX)), "{}", object);
        }
    }
}
