//! Keys and holders: any text that is valid comes back word for word, and differs from any other.

use tenure::{Key, Lease, NAME_BYTES_MAX, Released};

use crate::stage::{Stage, holder, key, ok};

/// Texts that a store may take for something else than text.
pub(crate) const AWKWARD: &[&str] = &[
    "'",
    "''",
    "\"",
    "\"\"",
    "`",
    "\\",
    "\\\\",
    "\\n",
    "\\0",
    "\\u0041",
    "\\'",
    "/",
    "//",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/./b",
    "/etc/passwd",
    "a.b",
    ".a",
    "a.",
    " ",
    "  ",
    " a",
    "a ",
    " a ",
    "a b",
    "%",
    "%%",
    "%s",
    "%00",
    "%2F",
    "%41",
    "a%",
    "_",
    "__",
    "a_",
    "*",
    "**",
    "?",
    "[",
    "]",
    "[a]",
    "[a-z]",
    "[^a]",
    "{",
    "}",
    "{}",
    "{a}",
    "{{a}}",
    "{0}",
    "$",
    "$1",
    "${a}",
    "$(a)",
    "#",
    "#a",
    "a#b",
    "&",
    "&amp;",
    "a&b=c",
    "=",
    "a=b",
    "+",
    "a+b",
    ",",
    "a,b",
    ";",
    "a;b",
    ":",
    "a:b",
    "::",
    "|",
    "||",
    "<",
    ">",
    "<a>",
    "!",
    "@",
    "^",
    "~",
    "~a",
    "(",
    ")",
    "()",
    "-",
    "--",
    "-a",
    "--help",
    "'; DROP TABLE leases; --",
    "' OR '1'='1",
    "x') OR 1=1 --",
    "a\u{a0}b",
    "\u{feff}a",
    "a\u{200b}b",
    "\u{200d}",
    "\u{2028}",
    "\u{fffd}",
    "\u{10ffff}",
    "\u{e000}",
    "null",
    "NULL",
    "None",
    "nil",
    "true",
    "false",
    "0",
    "-1",
    "1e9",
    "NaN",
    "CON",
    "nul",
    "default",
    "lease",
    "token",
    "key",
    "0x41",
    "01",
];

const SCRIPTS: &[&str] = &[
    "расчёт/ночной",
    "請求/夜間",
    "청구/야간",
    "レース・リース",
    "τιμολόγηση",
    "חיוב/לילה",
    "فوترة/ليلية",
    "बिलिंग/रात",
    "การเรียกเก็บเงิน",
    "ქართული",
    "🔑🗝️",
    "👩‍👩‍👧‍👦/👍🏽",
    "🇪🇺",
    "e\u{301}a\u{308}\u{323}",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘",
    "\u{202e}rtl\u{202c}",
    "𝕥𝕖𝕟𝕦𝕣𝕖",
    "ß/ẞ/ſ",
    "İstanbul/ıı",
    "ĳ/ﬁ/Ⅸ",
];

/// Takes all names at once, each as key and as holder; then each must be there word for
/// word, refuse another, renew, and be released without harm to the rest.
async fn hold_all(stage: &Stage, names: &[String]) {
    let mut leases: Vec<Lease> = Vec::new();
    // The holders run from the end, so that a store that mixes up two names shows it.
    let holders = names.iter().rev();
    for (name, by) in names.iter().zip(holders.clone()) {
        let request = stage.request_for(&key(name), &holder(by), stage.long());
        leases.push(stage.granted(&request).await);
    }
    for (lease, (name, by)) in leases.iter().zip(names.iter().zip(holders)) {
        assert_eq!(
            (lease.key.as_str(), lease.holder.as_str()),
            (&**name, &**by)
        );
        let seen = stage.live(&lease.key).await;
        assert_eq!((&seen.key, &seen.holder), (&lease.key, &lease.holder));
        assert_eq!(seen.token, lease.token, "the token of {name:?}");
        let held = stage.held(&stage.request(&lease.key, "another")).await;
        assert_eq!((&held.key, &held.holder), (&lease.key, &lease.holder));
        let (renewed, _) = stage.renewed(lease).await;
        assert_eq!((&renewed.key, &renewed.holder), (&lease.key, &lease.holder));
    }
    for (n, lease) in leases.iter().enumerate() {
        assert_eq!(
            stage.release(lease).await,
            Released::Released,
            "{:?}",
            lease.key
        );
        assert_eq!(stage.read(&lease.key).await, None, "{:?}", lease.key);
        if let Some(next) = leases.get(n + 1) {
            stage.renewed(next).await;
        }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// 512 bytes are 512 bytes, of whatever length the characters are, and two long names
/// that differ in their last or first character are two.
pub(crate) async fn names_of_the_greatest_length(stage: &Stage) {
    let ascii = "x".repeat(NAME_BYTES_MAX - 1);
    let slashes = "a/".repeat(NAME_BYTES_MAX / 2);
    let names = [
        format!("{ascii}x"),
        format!("{ascii}y"),
        format!("y{ascii}"),
        slashes,
        "%".repeat(NAME_BYTES_MAX),
        "'".repeat(NAME_BYTES_MAX),
        "é".repeat(NAME_BYTES_MAX / 2),
        "🔑".repeat(NAME_BYTES_MAX / 4),
        "x".into(),
    ];
    for name in &names[..names.len() - 1] {
        assert_eq!(name.len(), NAME_BYTES_MAX, "a name of the greatest length");
    }
    hold_all(stage, &names).await;
}

/// Any script, also those that run from right to left or combine characters.
pub(crate) async fn names_in_any_script(stage: &Stage) {
    hold_all(stage, &owned(SCRIPTS)).await;
}

/// Quotes, slashes, percent signs, wildcards, spaces at either end, and words that mean
/// something elsewhere: text is text.
pub(crate) async fn names_with_every_awkward_character(stage: &Stage) {
    let printable = (' '..='~').map(|c| format!("char {c} in"));
    let names: Vec<_> = owned(AWKWARD).into_iter().chain(printable).collect();
    hold_all(stage, &names).await;
}

/// `Key` and `key` are two, as keys and as holders.
pub(crate) async fn names_differ_by_case(stage: &Stage) {
    let names = [
        "key", "Key", "KEY", "straße", "STRASSE", "strasse", "ı", "i", "I", "İ", "д", "Д",
    ];
    hold_all(stage, &owned(&names)).await;
    let lease = stage.take(&key("holder by case"), "Holder").await;
    let mut other = lease.clone();
    other.holder = holder("holder");
    stage.lost(&other).await;
    stage.release_in_vain(&other).await;
}

/// `é` as one character or as two are two keys and two holders: nothing is normalised.
pub(crate) async fn names_differ_by_normal_form(stage: &Stage) {
    let names = [
        "caf\u{e9}",
        "cafe\u{301}",
        "cafe",
        "\u{212b}",
        "\u{c5}",
        "A\u{30a}",
        "ﬁ",
        "fi",
        "１",
        "1",
        "a\u{200d}",
        "a",
    ];
    hold_all(stage, &owned(&names)).await;
    let lease = stage.take(&key("holder by form"), "caf\u{e9}").await;
    let mut other = lease.clone();
    other.holder = holder("cafe\u{301}");
    stage.lost(&other).await;
    stage.release_in_vain(&other).await;
}

/// Keys that begin or end alike, also by spaces and slashes, are independent.
pub(crate) async fn names_that_begin_alike_are_independent(stage: &Stage) {
    let names = [
        "a", "aa", "a/", "a/b", "a/b/", "a/b/c", "/a", "a ", " a", "a:", "a:b", "a.b", "a-b",
        "a_b", "ab", "b/a", "b",
    ];
    hold_all(stage, &owned(&names)).await;
    // Deleting the record of one by hand leaves its neighbours alone.
    let lease = stage.take(&key("a/b"), "x").await;
    for gone in ["a", "a/", "a/b/c"] {
        let gone: Key = key(gone);
        stage.take(&gone, "x").await;
        stage.harness.delete_record(&gone).await;
        let seen = ok("read", stage.store().read(&gone).await);
        assert_eq!(seen, None, "the harness deletes {gone:?}");
    }
    stage.renewed(&lease).await;
}
