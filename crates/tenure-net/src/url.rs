//! The URL of a store that is a server, taken apart: who, where, which, how.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tenure::{Error, Result};

use crate::secret::Secret;

/// `scheme://user:password@host:port,host:port/path?name=value&name=value`, decoded.
///
/// Options are taken one by one; [`finish`](StoreUrl::finish) refuses those that nobody
/// took. Neither `Debug` nor `Display` shows a password or the value of an option.
pub struct StoreUrl {
    scheme: String,
    user: Option<String>,
    password: Option<Secret>,
    hosts: Vec<Host>,
    path: String,
    options: BTreeMap<String, String>,
    /// What was asked for, to be named where something else stands.
    known: Vec<&'static str>,
}

/// One server of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name or an address; an IPv6 address without its brackets.
    pub name: String,
    /// The port, if the URL has one.
    pub port: Option<u16>,
}

/// Longer than any URL that means something.
const BYTES_MAX: usize = 8 * 1024;

const ESCAPES: &str =
    "write / ? # @ : and % in a user, password or value as %2F %3F %23 %40 %3A %25";

impl StoreUrl {
    /// Takes the URL apart. Nothing is opened or looked up.
    pub fn parse(url: &str) -> Result<Self> {
        if url.len() > BYTES_MAX {
            return Err(Error::invalid(format!(
                "the store URL is {} bytes long: at most {BYTES_MAX} are possible",
                url.len()
            )));
        }
        if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(Error::invalid(
                "the store URL has a space or a control character in it: write it as %20 or so, or leave it out",
            ));
        }
        // What stands in a URL may be a secret, so no message repeats any of it but the scheme.
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            Error::invalid(
                "the store URL has no ://: write it as scheme://user@host:port/path?name=value",
            )
        })?;
        let scheme = scheme.to_ascii_lowercase();
        let wrong = |what: &str| Error::invalid(format!("the {scheme}: URL {what}; {ESCAPES}"));
        if rest.contains('#') {
            return Err(wrong("has a # in it, and means nothing to a store"));
        }
        let (place, options) = match rest.split_once('?') {
            Some((place, options)) => (place, Some(options)),
            None => (rest, None),
        };
        let (authority, path) = match place.split_once('/') {
            Some((authority, path)) => (authority, path),
            None => (place, ""),
        };
        let decode = |text: &str| {
            decoded(text).ok_or_else(|| wrong("is no UTF-8 text after its % signs are resolved"))
        };
        let (user, servers) = match authority.rsplit_once('@') {
            Some((user, servers)) => (Some(user), servers),
            None => (None, authority),
        };
        let (user, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
            None => (None, None),
        };
        let mut hosts = Vec::new();
        for server in servers.split(',').filter(|_| !servers.is_empty()) {
            hosts.push(host(server).map_err(&wrong)?);
        }
        let mut by_name = BTreeMap::new();
        for option in options.iter().flat_map(|options| options.split('&')) {
            if option.is_empty() {
                continue;
            }
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| wrong("has an option without a value: write name=value"))?;
            if by_name.insert(decode(name)?, decode(value)?).is_some() {
                return Err(wrong("has an option twice"));
            }
        }
        Ok(Self {
            scheme: scheme.clone(),
            user: user.filter(|user| !user.is_empty()),
            password: password
                .filter(|password| !password.is_empty())
                .map(Secret::new),
            hosts,
            path: decode(path)?,
            options: by_name,
            known: Vec::new(),
        })
    }

    /// The scheme in small letters.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, if there is one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The servers in their order; none if the URL names none.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// What stands behind the servers, without the slash before it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value of this option, which then counts as understood.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        self.options.remove(name)
    }

    /// A switch: `on` or `off`, `true` or `false`.
    pub fn take_switch(&mut self, name: &'static str) -> Result<Option<bool>> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match value.as_str() {
            "on" | "true" => Ok(Some(true)),
            "off" | "false" => Ok(Some(false)),
            _ => Err(self.wrong_value(name, "on or off")),
        }
    }

    /// A whole number.
    pub fn take_number(&mut self, name: &'static str) -> Result<Option<u64>> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let number = value.parse();
        number
            .map(Some)
            .map_err(|_| self.wrong_value(name, "a whole number"))
    }

    /// A time such as `500ms` or `10s`.
    pub fn take_duration(&mut self, name: &'static str) -> Result<Option<Duration>> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let duration = humantime::parse_duration(&value);
        duration
            .map(Some)
            .map_err(|_| self.wrong_value(name, "a time such as 500ms or 10s"))
    }

    /// The password: in the URL, in the file of the option `password-file`, in the file
    /// that TENURE_STORE_PASSWORD_FILE names, or in TENURE_STORE_PASSWORD.
    pub fn take_password(&mut self) -> Result<Option<Secret>> {
        self.take_password_in(&|name| std::env::var(name).ok())
    }

    fn take_password_in(
        &mut self,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Secret>> {
        let file = self.take("password-file");
        if let Some(password) = self.password.take() {
            if file.is_some() {
                return Err(Error::invalid(format!(
                    "the {}: URL has a password and a password-file: leave one of them out",
                    self.scheme
                )));
            }
            return Ok(Some(password));
        }
        let set = |name| environment(name).filter(|value| !value.is_empty());
        if let Some(path) = file.or_else(|| set("TENURE_STORE_PASSWORD_FILE")) {
            return Secret::from_file(path).map(Some);
        }
        Ok(set("TENURE_STORE_PASSWORD").map(Secret::new))
    }

    /// Refuses what is left over: an option that no `take` asked for.
    pub fn finish(self) -> Result<()> {
        let Some(name) = self.options.keys().next() else {
            return Ok(());
        };
        // The name may be a secret that went astray, so only one that looks like a name is shown.
        let plain = name.len() <= 40
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        let shown = if plain {
            format!(" \"{name}\"")
        } else {
            " of that name".to_owned()
        };
        let nearest = self
            .known
            .iter()
            .map(|known| (strsim::osa_distance(name, known), known))
            .min();
        let hint = match nearest {
            Some((distance, known)) if distance <= 2 => format!("did you mean {known}?"),
            _ => format!("there are {}", self.known.join(", ")),
        };
        Err(Error::invalid(format!(
            "a {}: URL has no option{shown}: {hint}",
            self.scheme
        )))
    }

    fn wrong_value(&self, name: &str, wanted: &str) -> Error {
        Error::invalid(format!(
            "the option {name} of the {}: URL has to be {wanted}",
            self.scheme
        ))
    }
}

/// For logs: no password, and no values of options.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{host}")?;
        }
        if !self.path.is_empty() {
            write!(f, "/{}", self.path)?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Host {
    /// The address as a client wants it: with this port, unless the URL has one.
    pub fn with_port(&self, port: u16) -> String {
        let port = self.port.unwrap_or(port);
        Host {
            name: self.name.clone(),
            port: Some(port),
        }
        .to_string()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]", self.name)?,
            false => f.write_str(&self.name)?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn host(server: &str) -> std::result::Result<Host, &'static str> {
    let (name, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or("has a [ without its ]")?;
            let address: std::net::Ipv6Addr = name
                .parse()
                .map_err(|_| "has no IPv6 address in its brackets")?;
            let port = match port {
                "" => None,
                port => Some(
                    port.strip_prefix(':')
                        .ok_or("has something between ] and the port")?,
                ),
            };
            (address.to_string(), port)
        }
        None => {
            let (name, port) = match server.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (server, None),
            };
            if name.is_empty() {
                return Err("has a server without a name");
            }
            let plain = |c: char| c.is_alphanumeric() || "-._~".contains(c);
            if !name.chars().all(plain) {
                return Err("has a server whose name is none");
            }
            (name.to_owned(), port)
        }
    };
    // No plus sign, which `parse` would take.
    let number = |port: &str| {
        port.parse()
            .ok()
            .filter(|n| *n > 0 && port.bytes().all(|b| b.is_ascii_digit()))
    };
    let port = match port {
        Some(port) => Some(number(port).ok_or("has a port that is no number from 1 to 65535")?),
        None => None,
    };
    Ok(Host { name, port })
}

/// Percent signs resolved; none if one is not followed by two hexadecimal digits, or the
/// bytes are no UTF-8 or have a control character among them.
fn decoded(text: &str) -> Option<String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
    }
    let text = percent_decode_str(text).decode_utf8().ok()?.into_owned();
    (!text.chars().any(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(url: &str) -> String {
        let refused = StoreUrl::parse(url).and_then(StoreUrl::finish);
        let error = refused.expect_err(url);
        assert_eq!(error.kind(), tenure::ErrorKind::Invalid);
        error.to_string()
    }

    #[test]
    fn every_part() {
        let text = "POSTGRES://m%40e:hun%3Ater%2F2@db.example:5432,[::1]:1,[::2],other/a%20b?schema=x%26y&b=";
        let mut url = StoreUrl::parse(text).unwrap();
        assert_eq!(url.scheme(), "postgres");
        assert_eq!(url.user(), Some("m@e"));
        let hosts: Vec<_> = url.hosts().iter().map(|host| host.with_port(9)).collect();
        assert_eq!(hosts, ["db.example:5432", "[::1]:1", "[::2]:9", "other:9"]);
        assert_eq!(url.path(), "a b");
        assert_eq!(url.take("schema").as_deref(), Some("x&y"));
        assert_eq!(url.take("b").as_deref(), Some(""));
        assert_eq!(url.take("c"), None);
        let password = url
            .take_password_in(&|_| Some("other".into()))
            .unwrap()
            .unwrap();
        assert_eq!(password.expose(), "hun:ter/2");
        url.finish().unwrap();
    }

    #[test]
    fn parts_that_are_not_there() {
        let url = StoreUrl::parse("redis://").unwrap();
        assert!(url.hosts().is_empty() && url.path().is_empty() && url.user().is_none());
        let mut url = StoreUrl::parse("redis://:secret@h").unwrap();
        assert_eq!(url.user(), None);
        assert_eq!(
            url.take_password_in(&|_| None).unwrap().unwrap().expose(),
            "secret"
        );
    }

    #[test]
    fn the_password_is_looked_for_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("one"), "from option").unwrap();
        std::fs::write(path("two"), "from file").unwrap();
        let two = path("two");
        let environment = |name: &str| match name {
            "TENURE_STORE_PASSWORD_FILE" => Some(two.clone()),
            "TENURE_STORE_PASSWORD" => Some("from environment".to_owned()),
            _ => None,
        };
        let password = |url: &str, environment: &dyn Fn(&str) -> Option<String>| {
            let mut url = StoreUrl::parse(url).unwrap();
            url.take_password_in(environment)
                .map(|found| found.map(|found| found.expose().to_owned()))
        };
        let option = format!("x://u@h?password-file={}", path("one"));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(password("x://u:url@h", &environment).unwrap(), some("url"));
        assert_eq!(
            password(&option, &environment).unwrap(),
            some("from option")
        );
        assert_eq!(
            password("x://u@h", &environment).unwrap(),
            some("from file")
        );
        let only = |name: &str| environment(name).filter(|_| name == "TENURE_STORE_PASSWORD");
        assert_eq!(
            password("x://u@h", &only).unwrap(),
            some("from environment")
        );
        assert_eq!(password("x://u@h", &|_| None).unwrap(), None);
        let both = option.replace("u@h", "u:url@h");
        assert_eq!(
            password(&both, &environment).unwrap_err().kind(),
            tenure::ErrorKind::Invalid
        );
    }

    #[test]
    fn typed_options() {
        let mut url = StoreUrl::parse("x://h?a=on&b=off&c=12&d=500ms&e=maybe&f=-1&g=soon").unwrap();
        assert_eq!(url.take_switch("a").unwrap(), Some(true));
        assert_eq!(url.take_switch("b").unwrap(), Some(false));
        assert_eq!(url.take_number("c").unwrap(), Some(12));
        assert_eq!(
            url.take_duration("d").unwrap(),
            Some(Duration::from_millis(500))
        );
        assert!(
            url.take_switch("e")
                .unwrap_err()
                .to_string()
                .contains("on or off")
        );
        assert!(
            url.take_number("f")
                .unwrap_err()
                .to_string()
                .contains("a whole number")
        );
        assert!(
            url.take_duration("g")
                .unwrap_err()
                .to_string()
                .contains("500ms")
        );
        assert_eq!(url.take_switch("none").unwrap(), None);
        url.finish().unwrap();
    }

    #[test]
    fn what_is_left_over_is_named_with_the_nearest() {
        let mut url = StoreUrl::parse("etcd://h?prefxi=a").unwrap();
        assert_eq!(url.take("prefix"), None);
        let text = url.finish().unwrap_err().to_string();
        assert!(text.contains("\"prefxi\": did you mean prefix?"), "{text}");
        let mut url = StoreUrl::parse("etcd://h?something=a").unwrap();
        url.take("prefix");
        let text = url.finish().unwrap_err().to_string();
        assert!(text.contains("there are prefix"), "{text}");
    }

    #[test]
    fn what_cannot_be_understood_is_refused_without_showing_it() {
        for url in [
            "postgres://me:hun/ter2@db/app",
            "postgres://me:hun?ter2@db/app",
            "postgres://me:hunter2#@db/app",
            "postgres://me:hunter2%zz@db/app",
            "postgres://me:hunter2%ff@db",
            "postgres://me:hunter2@db:port",
            "postgres://me:hunter2@db:+1",
            "postgres://me:hunter2@db:0",
            "postgres://me:hunter2@db:65536",
            "postgres://me:hunter2@[::1",
            "postgres://me:hunter2@[x]",
            "postgres://me:hunter2@[::1]x",
            "postgres://me:hunter2@a,,b",
            "postgres://me:hunter2@a b",
            "postgres://me:hunter2@a\n",
            "postgres://me:hunter2@h?a",
            "postgres://me:hunter2@h?a=1&a=2",
            "postgres:me:hunter2@h",
            "postgres://h?hunter2%3D=x",
        ] {
            let text = refused(url);
            assert!(
                !text.contains("ter2") && text.lines().count() == 1,
                "{text}"
            );
        }
        assert!(refused(&format!("x://{}", "a".repeat(9000))).contains("bytes long"));
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in any::<String>()) {
            let _ = StoreUrl::parse(&text);
            let _ = StoreUrl::parse(&format!("x://{text}"));
        }

        #[test]
        fn no_password_is_ever_shown(password in "[a-z0-9]{12}", user in "[A-Z]{0,4}", host in "[A-Z]{1,5}") {
            let url = StoreUrl::parse(&format!("x://{user}:{password}@{host}?y={password}")).unwrap();
            let shown = format!("{url} {url:?}");
            prop_assert!(!shown.contains(&password));
        }
    }
}
