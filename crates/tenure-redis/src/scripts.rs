//! The scripts: each is one atomic step on the server.

use std::sync::LazyLock;

use redis::Script;

/// A script in full and the hash by which a server that has it knows it.
#[derive(Debug)]
pub(crate) struct Atomic {
    pub text: String,
    pub hash: String,
}

macro_rules! script {
    ($name:ident, $($file:literal),+) => {
        pub(crate) static $name: LazyLock<Atomic> = LazyLock::new(|| {
            Atomic::new(concat!($(include_str!(concat!("scripts/", $file))),+))
        });
    };
}

script!(ACQUIRE, "look.lua", "acquire.lua");
script!(RENEW, "renew_usual.lua", "look.lua", "renew.lua");
script!(RELEASE, "look.lua", "release.lua");
script!(READ, "look.lua", "read.lua");
script!(ASK, "look.lua", "ask.lua");

impl Atomic {
    fn new(text: &str) -> Self {
        // What is said for people need not travel.
        let text: Vec<_> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("--"))
            .collect();
        let text = text.join("\n");
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_differ_and_carry_no_comments() {
        let all = [&*ACQUIRE, &*RENEW, &*RELEASE, &*READ, &*ASK];
        for (index, script) in all.iter().enumerate() {
            assert_eq!(script.hash.len(), 40);
            assert!(!script.text.contains("--"));
            assert!(all[..index].iter().all(|other| other.hash != script.hash));
        }
    }
}
