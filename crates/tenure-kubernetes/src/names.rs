//! From a key to the name of its Lease and back.
//!
//! Kubernetes allows small letters, digits, `-` and `.` in a name, 253 in all. A key that is
//! such a name is used as it is, so that it is the Lease that a Go replica names. Any other
//! is written as `tenure--` and its bytes: letters and digits as they are, the rest as `-`
//! and two hex digits. A key too long for that is named by its hash and stands in the note.

use aws_lc_rs::digest::{SHA256, digest};
use std::fmt::Write as _;
use tenure::Key;

const LENGTH_MAX: usize = 253;
const ENCODED: &str = "tenure--";
/// No encoded key begins so: `-sh` is no hex number.
const HASHED: &str = "tenure---sha256-";

/// The name of the Lease of this key.
pub(crate) fn name(key: &Key) -> String {
    let key = key.as_str();
    if is_name(key) && !key.starts_with(ENCODED) {
        return key.to_owned();
    }
    let encoded = encode(key);
    if encoded.len() <= LENGTH_MAX {
        return encoded;
    }
    let hash = digest(&SHA256, key.as_bytes());
    let mut name = HASHED.to_owned();
    for byte in hash.as_ref() {
        push_hex(&mut name, *byte);
    }
    name
}

/// The key of the Lease of this name; none if the name does not tell, or is not ours.
pub(crate) fn key(name: &str) -> Option<Key> {
    let Some(body) = name.strip_prefix(ENCODED) else {
        return is_name(name).then(|| Key::new(name).ok())?;
    };
    let key = Key::new(decode(body)?).ok()?;
    // One key has one name: another spelling of it is somebody else's Lease.
    (self::name(&key) == name).then_some(key)
}

/// Whether the key of a Lease of this name stands in its note only.
pub(crate) fn is_hashed(name: &str) -> bool {
    name.starts_with(HASHED)
}

/// Whether Kubernetes allows this as the name of a Lease, or of a namespace if it has no dot.
pub(crate) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        let bytes = part.as_bytes();
        let ends = bytes.first().zip(bytes.last());
        ends.is_some_and(|(first, last)| plain(*first) && plain(*last))
            && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
    };
    text.len() <= LENGTH_MAX && text.split('.').all(part)
}

fn encode(key: &str) -> String {
    let mut name = ENCODED.to_owned();
    for byte in key.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() {
            name.push(char::from(byte));
        } else {
            name.push('-');
            push_hex(&mut name, byte);
        }
    }
    name
}

fn decode(body: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(body.len());
    let mut rest = body.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'-' {
            bytes.push(*first);
            continue;
        }
        let (hex, more) = rest.split_at_checked(2)?;
        let hex = std::str::from_utf8(hex).ok()?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        rest = more;
    }
    String::from_utf8(bytes).ok()
}

fn push_hex(text: &mut String, byte: u8) {
    // Writing to a String cannot fail.
    let _ = write!(text, "{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(key: &str) -> String {
        name(&Key::new(key).unwrap())
    }

    #[test]
    fn a_key_that_is_a_name_is_used_as_it_is() {
        for key in [
            "my-operator",
            "a",
            "0",
            "a.b-c.d",
            "tenure-x",
            "kube-scheduler",
        ] {
            assert_eq!(named(key), key);
        }
    }

    #[test]
    fn any_other_key_is_written_so_that_it_can_be_read_back() {
        assert_eq!(named("billing/nightly"), "tenure--billing-2fnightly");
        assert_eq!(named("Job"), "tenure---4aob");
        for key in [
            "billing/nightly",
            "Job",
            "/a",
            "a/",
            "-",
            ".",
            "..",
            "a..b",
            "a.",
            "-a",
            "é",
            "🔑",
            "tenure--x",
            "%2F",
            "tenure---sha256-00",
            "a_b",
        ] {
            let name = named(key);
            assert!(is_name(&name) && name.starts_with(ENCODED), "{name}");
            assert_eq!(super::key(&name).unwrap().as_str(), key);
        }
    }

    #[test]
    fn a_long_key_is_named_by_its_hash() {
        for key in ["x".repeat(254), "é".repeat(256), "a/".repeat(256)] {
            let name = named(&key);
            assert!(is_hashed(&name) && is_name(&name), "{name}");
            assert_eq!(super::key(&name), None, "the note tells");
        }
        assert_ne!(named(&"x".repeat(511)), named(&"x".repeat(512)));
        assert_eq!(named(&"x".repeat(253)), "x".repeat(253));
    }

    #[test]
    fn a_name_that_no_key_has_is_nobodys() {
        for name in [
            "tenure--abc",
            "tenure---2",
            "tenure---2F",
            "tenure---zz",
            "tenure---61",
            "tenure---+1",
            "A",
            "a_b",
            "",
            "tenure---ff",
            "tenure---0a",
        ] {
            assert_eq!(super::key(name), None, "{name}");
        }
    }
}
