//! The URL of a store: taken apart, and shown again without its secrets.

use std::time::Duration;

use tenure::{Error, Result};
use tenure_net::{StoreUrl, Tls};

use crate::hosts::Server;
use crate::names::Table;
use crate::options::{ChannelBinding, Listen, PostgresOptions, Prepare, SslMode};

impl PostgresOptions {
    /// `postgres://user@host:port,host:port/database?name=value`, also `postgresql://`.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(Error::invalid(format!(
                "{}: is no URL of a PostgreSQL store: write postgres://user@host/database",
                url.scheme()
            )));
        }
        let mut options = Self::new(url.hosts().iter().map(Server::of_url));
        match (url.take("host"), options.servers.is_empty()) {
            (Some(host), true) => {
                let port = url.take_number("port")?.map(u16::try_from).transpose();
                let port = port.map_err(|_| Error::invalid("port has to be at most 65535"))?;
                options.servers.push(Server::new(host, port));
            }
            (Some(_), false) => {
                return Err(Error::invalid(
                    "the postgres: URL has a host and the option host: leave one of them out",
                ));
            }
            (None, true) => {
                return Err(Error::invalid(
                    "the postgres: URL names no host: write postgres://user@host/database, or host=/var/run/postgresql for a socket",
                ));
            }
            (None, false) => {}
        }
        options.user = url.user().map(str::to_owned);
        options.password = url.take_password()?;
        options.database = Some(url.path().to_owned()).filter(|path| !path.is_empty());
        options.take_names(&mut url)?;
        options.take_security(&mut url)?;
        options.take_ways(&mut url)?;
        url.finish()?;
        Ok(options)
    }

    fn take_names(&mut self, url: &mut StoreUrl) -> Result<()> {
        if let Some(schema) = url.take("schema") {
            self.table.schema = schema;
        }
        if let Some(table) = url.take("table") {
            self.table.name = table;
        }
        if let Some(name) = url.take("application_name") {
            self.application_name = name;
        }
        self.table.check()
    }

    fn take_security(&mut self, url: &mut StoreUrl) -> Result<()> {
        self.tls = Tls::from_url(url)?;
        self.ssl_mode = match url.take("sslmode").as_deref() {
            None => None,
            Some("disable") => Some(SslMode::Disable),
            Some("prefer") => Some(SslMode::Prefer),
            Some("require") => Some(SslMode::Require),
            Some("verify-ca") => Some(SslMode::VerifyCa),
            Some("verify-full") => Some(SslMode::VerifyFull),
            Some(_) => {
                return Err(Error::invalid(
                    "sslmode has to be disable, prefer, require, verify-ca or verify-full",
                ));
            }
        };
        if self.ssl_mode == Some(SslMode::Disable) && !self.tls.is_default() {
            return Err(Error::invalid(
                "sslmode=disable with tls-ca, tls-cert or tls-key: leave one of them out",
            ));
        }
        self.channel_binding = match url.take("channel_binding").as_deref() {
            None | Some("prefer") => ChannelBinding::Prefer,
            Some("disable") => ChannelBinding::Disable,
            Some("require") => ChannelBinding::Require,
            Some(_) => {
                return Err(Error::invalid(
                    "channel_binding has to be disable, prefer or require",
                ));
            }
        };
        Ok(())
    }

    fn take_ways(&mut self, url: &mut StoreUrl) -> Result<()> {
        self.writable = match url.take("target_session_attrs").as_deref() {
            None => None,
            Some("any") => Some(false),
            Some("read-write" | "primary") => Some(true),
            Some(_) => {
                return Err(Error::invalid(
                    "target_session_attrs has to be read-write, primary or any: leases are written",
                ));
            }
        };
        self.listen = match url.take("listen").as_deref() {
            None | Some("on") => Listen::On,
            Some("off") => Listen::Off,
            Some(servers) => Listen::At(listen_servers(servers)?),
        };
        self.prepare = match url.take("prepare").as_deref() {
            None | Some("auto") => Prepare::Auto,
            Some("on") => Prepare::On,
            Some("off") => Prepare::Off,
            Some(_) => return Err(Error::invalid("prepare has to be auto, on or off")),
        };
        if let Some(number) = url.take_number("pool")? {
            self.connections_max = usize::try_from(number).unwrap_or(0);
            if !(1..=1000).contains(&self.connections_max) {
                return Err(Error::invalid("pool has to be a number from 1 to 1000"));
            }
        }
        if let Some(time) = take_time(url, "connect_timeout")? {
            self.connect_timeout = time;
        }
        if let Some(time) = take_time(url, "lock_timeout")? {
            self.lock_timeout = time;
        }
        Ok(())
    }

    /// Without any secret, for messages and commands.
    pub(crate) fn shown(&self) -> String {
        if self.servers.is_empty() {
            return "the given pool".into();
        }
        let mut shown = String::from("postgres://");
        if let Some(user) = &self.user {
            shown += &format!("{}@", escaped(user));
        }
        let socket = |server: &Server| matches!(server, Server::Unix(..));
        let database = escaped(self.database.as_deref().unwrap_or_default());
        let mut separator = '?';
        let mut option = |shown: &mut String, name: &str, value: &str| {
            *shown += &format!("{separator}{name}={}", escaped(value));
            separator = '&';
        };
        match self.servers.iter().find(|server| socket(server)) {
            Some(Server::Unix(folder, port)) => {
                shown += &format!("/{database}");
                option(&mut shown, "host", &folder.to_string_lossy());
                if *port != 5432 {
                    option(&mut shown, "port", &port.to_string());
                }
            }
            _ => {
                let servers: Vec<_> = self.servers.iter().map(ToString::to_string).collect();
                shown += &format!("{}/{database}", servers.join(","));
            }
        }
        let usual = Table::default();
        if self.table.schema != usual.schema {
            option(&mut shown, "schema", &self.table.schema);
        }
        if self.table.name != usual.name {
            option(&mut shown, "table", &self.table.name);
        }
        shown
    }
}

/// A number alone is seconds, as libpq has it.
fn take_time(url: &mut StoreUrl, name: &'static str) -> Result<Option<Duration>> {
    let Some(value) = url.take(name) else {
        return Ok(None);
    };
    let time = match value.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(&value).ok(),
    };
    let fits = |time: &Duration| (1..=3_600_000).contains(&time.as_millis());
    time.filter(fits).map(Some).ok_or_else(|| {
        Error::invalid(format!(
            "{name} has to be a time from 1ms to 1h, such as 500ms or 10s"
        ))
    })
}

fn listen_servers(servers: &str) -> Result<Vec<Server>> {
    if servers.starts_with('/') {
        return Ok(vec![Server::new(servers, None)]);
    }
    let parsed = StoreUrl::parse(&format!("listen://{servers}"));
    let hosts: Vec<_> = parsed
        .iter()
        .filter(|url| url.path().is_empty() && url.user().is_none())
        .flat_map(StoreUrl::hosts)
        .map(Server::of_url)
        .collect();
    match hosts.is_empty() {
        true => Err(Error::invalid(
            "listen has to be on, off, or the direct address of the server as host:port",
        )),
        false => Ok(hosts),
    }
}

/// As it can stand in a URL.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> PostgresOptions {
        PostgresOptions::from_url(url).unwrap()
    }

    #[test]
    fn a_url_is_taken_apart() {
        let options = of(
            "postgresql://me:hunter2@a:1,[::1],c/db?schema=ha&table=x%22y&sslmode=require&pool=3&listen=off&connect_timeout=7&lock_timeout=250ms",
        );
        let servers: Vec<_> = options.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["a:1", "[::1]:5432", "c:5432"]);
        assert_eq!(options.user.as_deref(), Some("me"));
        assert_eq!(options.database.as_deref(), Some("db"));
        assert_eq!(options.table.to_string(), "\"ha\".\"x\"\"y\"");
        assert_eq!(options.ssl_mode, Some(SslMode::Require));
        assert_eq!(options.connections_max, 3);
        assert_eq!(options.listen, Listen::Off);
        assert_eq!(options.connect_timeout, Duration::from_secs(7));
        assert_eq!(options.lock_timeout, Duration::from_millis(250));
        assert!(!format!("{options:?}").contains("hunter2"));
        assert_eq!(
            options.shown(),
            "postgres://me@a:1,[::1]:5432,c:5432/db?schema=ha&table=x%22y"
        );
    }

    #[test]
    fn a_socket_is_a_host() {
        let options = of("postgres:///db?host=/var/run/postgresql");
        let folder = "/var/run/postgresql".into();
        assert_eq!(options.servers, [Server::Unix(folder, 5432)]);
        assert_eq!(options.shown(), "postgres:///db?host=/var/run/postgresql");
        let options = of("postgres:///?host=/tmp&port=5433");
        assert_eq!(options.servers, [Server::Unix("/tmp".into(), 5433)]);
    }

    #[test]
    fn listening_elsewhere() {
        let at = |url| of(url).listen;
        let direct = Server::Tcp("direct".into(), 5433);
        assert_eq!(
            at("postgres://pooler:6432/db?listen=direct:5433"),
            Listen::At(vec![direct])
        );
        assert_eq!(at("postgres://h/db?listen=on"), Listen::On);
        for bad in ["", "a@b", "a/b", "a:b"] {
            let url = format!("postgres://h/db?listen={bad}");
            assert!(PostgresOptions::from_url(&url).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (url, word) in [
            ("postgres://", "no host"),
            ("mysql://h/db", "no URL of a PostgreSQL"),
            ("postgres://h/db?sslmode=allow", "sslmode"),
            ("postgres://h/db?channel_binding=x", "channel_binding"),
            (
                "postgres://h/db?target_session_attrs=standby",
                "target_session_attrs",
            ),
            ("postgres://h/db?pool=0", "pool"),
            ("postgres://h/db?prepare=x", "prepare"),
            ("postgres://h/db?lock_timeout=0", "lock_timeout"),
            ("postgres://h/db?lock_timeout=soon", "lock_timeout"),
            ("postgres://h/db?host=/tmp", "leave one"),
            ("postgres://h/db?schemas=x", "did you mean schema"),
            ("postgres://h/db?table=", "table"),
        ] {
            let error = PostgresOptions::from_url(url).unwrap_err();
            assert_eq!(error.kind(), tenure::ErrorKind::Invalid, "{url}: {error}");
            assert!(error.to_string().contains(word), "{url}: {error}");
        }
    }
}
