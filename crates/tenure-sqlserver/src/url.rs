//! The URL of a store: taken apart, and shown again without its secrets.

use std::time::Duration;

use tenure::{Error, Result};
use tenure_net::{Host, StoreUrl, Tls};

use crate::names::Table;
use crate::options::{Encrypt, PORT, SqlServerOptions};

impl SqlServerOptions {
    /// `sqlserver://user@host:port/database?name=value`, also `mssql://`.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        if !matches!(url.scheme(), "sqlserver" | "mssql") {
            return Err(Error::invalid(format!(
                "{}: is no URL of a SQL Server store: write sqlserver://user@host/database",
                url.scheme()
            )));
        }
        let [host] = url.hosts() else {
            return Err(Error::invalid(
                "the sqlserver: URL has to name one host: for an availability group its listener",
            ));
        };
        let mut options = Self::new(host.name.clone()).port(host.port.unwrap_or(PORT));
        options.user = url.user().map(str::to_owned);
        options.password = url.take_password()?;
        options.database = Some(url.path().to_owned()).filter(|path| !path.is_empty());
        if let Some(schema) = url.take("schema") {
            options.table.schema = schema;
        }
        if let Some(table) = url.take("table") {
            options.table.name = table;
        }
        if let Some(name) = url.take("applicationName") {
            options.application_name = name;
        }
        options.take_security(&mut url)?;
        options.take_limits(&mut url)?;
        url.finish()?;
        options.check()?;
        Ok(options)
    }

    fn take_security(&mut self, url: &mut StoreUrl) -> Result<()> {
        self.tls = Tls::from_url(url)?;
        self.encrypt = match url.take("encrypt").as_deref() {
            None | Some("on" | "true" | "mandatory") => Encrypt::On,
            Some("strict") => Encrypt::Strict,
            Some("off" | "false" | "optional") => Encrypt::Off,
            Some(_) => return Err(Error::invalid("encrypt has to be on, strict or off")),
        };
        let trust = url.take_switch("trustServerCertificate")?;
        self.trust_server_certificate = trust.unwrap_or(false);
        self.certificate_name = url.take("hostNameInCertificate");
        Ok(())
    }

    fn take_limits(&mut self, url: &mut StoreUrl) -> Result<()> {
        if let Some(number) = url.take_number("pool")? {
            self.connections_max = usize::try_from(number).unwrap_or(0);
            if !(1..=1000).contains(&self.connections_max) {
                return Err(Error::invalid("pool has to be a number from 1 to 1000"));
            }
        }
        for (name, time) in [
            ("connect_timeout", &mut self.connect_timeout),
            ("command_timeout", &mut self.command_timeout),
            ("lock_timeout", &mut self.lock_timeout),
        ] {
            if let Some(given) = take_time(url, name)? {
                *time = given;
            }
        }
        Ok(())
    }

    /// Without any secret, for messages and commands.
    pub(crate) fn shown(&self) -> String {
        if self.host.is_empty() {
            return "the given connection".into();
        }
        let mut shown = String::from("sqlserver://");
        if let Some(user) = &self.user {
            shown += &format!("{}@", escaped(user));
        }
        let host = Host {
            name: self.host.clone(),
            port: Some(self.port).filter(|port| *port != PORT),
        };
        let database = escaped(self.database.as_deref().unwrap_or_default());
        shown += &format!("{host}/{database}");
        let usual = Table::default();
        let mut separator = '?';
        for (name, value, usual) in [
            ("schema", &self.table.schema, usual.schema),
            ("table", &self.table.name, usual.name),
        ] {
            if *value != usual {
                shown += &format!("{separator}{name}={}", escaped(value));
                separator = '&';
            }
        }
        shown
    }
}

/// A number alone is seconds, as in Microsoft's drivers.
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

/// As it can stand in a URL.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
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

    fn of(url: &str) -> SqlServerOptions {
        SqlServerOptions::from_url(url).unwrap()
    }

    #[test]
    fn a_url_is_taken_apart() {
        let options = of(
            "mssql://me:hunter2@[::1]:1/my%20db?schema=ha&table=x%5Dy&encrypt=strict&pool=3&connect_timeout=7&command_timeout=2s&lock_timeout=250ms&hostNameInCertificate=h",
        );
        assert_eq!((options.host.as_str(), options.port), ("::1", 1));
        assert_eq!(options.user.as_deref(), Some("me"));
        assert_eq!(options.database.as_deref(), Some("my db"));
        assert_eq!(options.table.to_string(), "[ha].[x]]y]");
        assert_eq!(options.encrypt, Encrypt::Strict);
        assert_eq!(options.connections_max, 3);
        assert_eq!(options.connect_timeout, Duration::from_secs(7));
        assert_eq!(options.command_timeout, Duration::from_secs(2));
        assert_eq!(options.lock_timeout, Duration::from_millis(250));
        assert!(!format!("{options:?}").contains("hunter2"));
        assert_eq!(
            options.shown(),
            "sqlserver://me@[::1]:1/my%20db?schema=ha&table=x%5Dy"
        );
    }

    #[test]
    fn encryption_is_on_unless_it_is_switched_off() {
        let usual = of("sqlserver://me@h/db");
        assert_eq!((usual.encrypt, usual.port), (Encrypt::On, 1433));
        assert!(!usual.trust_server_certificate);
        assert_eq!(usual.shown(), "sqlserver://me@h/db");
        for (word, meant) in [
            ("on", Encrypt::On),
            ("true", Encrypt::On),
            ("off", Encrypt::Off),
        ] {
            assert_eq!(
                of(&format!("sqlserver://me@h/db?encrypt={word}")).encrypt,
                meant
            );
        }
        assert!(of("sqlserver://me@h/db?trustServerCertificate=true").trust_server_certificate);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (url, word) in [
            ("sqlserver://", "one host"),
            ("sqlserver://me@a,b/db", "listener"),
            ("sqlserver://h/db", "no user"),
            ("mysql://me@h/db", "no URL of a SQL Server"),
            ("sqlserver://me@h/db?encrypt=maybe", "encrypt"),
            (
                "sqlserver://me@h/db?encrypt=off&trustServerCertificate=true",
                "leave one",
            ),
            (
                "sqlserver://me@h/db?trustServerCertificate=on&hostNameInCertificate=x",
                "leave one",
            ),
            ("sqlserver://me@h/db?trustServerCertificate=x", "on or off"),
            ("sqlserver://me@h/db?pool=0", "pool"),
            ("sqlserver://me@h/db?command_timeout=0", "command_timeout"),
            ("sqlserver://me@h/db?lock_timeout=soon", "lock_timeout"),
            ("sqlserver://me@h/db?schemas=x", "did you mean schema"),
            ("sqlserver://me@h/db?table=", "table"),
            ("sqlserver://me@h/db?table=a%20", "blank"),
        ] {
            let error = SqlServerOptions::from_url(url).unwrap_err();
            assert_eq!(error.kind(), tenure::ErrorKind::Invalid, "{url}: {error}");
            assert!(error.to_string().contains(word), "{url}: {error}");
        }
    }
}
