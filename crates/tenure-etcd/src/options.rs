//! How a store is opened: from a URL, or part by part.

use std::fmt::Write as _;
use std::time::Duration;

use tenure::{Error, Result};
use tenure_net::{Secret, StoreUrl, Tls};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::link::Link;
use crate::record::NOTES;

/// The prefix that MaksIT.HAMode has by default.
const PREFIX: &str = "app_runtime_leases/";
const PORT: u16 = 2379;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// So often is a silent connection with open streams asked whether it is alive. etcd cuts
/// off whoever asks more often than every five seconds, or with no stream open.
const PING_EVERY: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(4);

/// Which etcd, who we are there, and under which prefix the leases lie.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `EtcdStore::open`"]
pub struct EtcdOptions {
    pub(crate) endpoints: Vec<String>,
    pub(crate) prefix: String,
    tls: Option<Tls>,
    login: Option<(String, Secret)>,
    connect_timeout: Duration,
}

impl EtcdOptions {
    /// These members, each as `host:port`, without TLS.
    pub fn new<I>(endpoints: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: PREFIX.to_owned(),
            tls: None,
            login: None,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// `etcd://user:password@host:2379,host:2379?prefix=…`, or `etcds://` with TLS.
    ///
    /// The other options are `password-file`, `tls-ca`, `tls-cert`, `tls-key` and
    /// `connect-timeout`.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        let secure = match url.scheme() {
            "etcd" => false,
            "etcds" => true,
            _ => {
                return Err(Error::invalid(
                    "an etcd store's URL begins with etcd:// or etcds://",
                ));
            }
        };
        if url.hosts().is_empty() {
            return Err(Error::invalid(
                "the etcd: URL names no server: write etcd://host:2379",
            ));
        }
        if !url.path().is_empty() {
            return Err(Error::invalid(
                "the etcd: URL has something behind its servers: name the prefix of the keys with ?prefix=",
            ));
        }
        let hosts: Vec<_> = url
            .hosts()
            .iter()
            .map(|host| host.with_port(PORT))
            .collect();
        let mut options = Self::new(hosts);
        if let Some(user) = url.user().map(str::to_owned) {
            let password = url.take_password()?.ok_or_else(|| {
                Error::invalid(
                    "the etcd: URL has a user and no password: put it into a file named by password-file=, or into TENURE_STORE_PASSWORD",
                )
            })?;
            options = options.login(user, password);
        }
        if let Some(prefix) = url.take("prefix") {
            options = options.prefix(prefix);
        }
        if let Some(timeout) = url.take_duration("connect-timeout")? {
            options = options.connect_timeout(timeout);
        }
        let tls = Tls::from_url(&mut url)?;
        if secure {
            options = options.tls(tls);
        } else if !tls.is_default() {
            return Err(Error::invalid(
                "tls-ca, tls-cert and tls-key need TLS: begin the URL with etcds://",
            ));
        }
        url.finish()?;
        crate::keys::Keys::new(&options.prefix)?;
        Ok(options)
    }

    /// What stands before the name of each key. Default `app_runtime_leases/`, as
    /// MaksIT.HAMode has it.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Over TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// As this user.
    pub fn login(mut self, user: impl Into<String>, password: Secret) -> Self {
        self.login = Some((user.into(), password));
        self
    }

    /// How long a member may take to accept a connection before the next is tried.
    /// Default 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// What an administrator runs so that a user has just the rights that are needed: to
    /// read and write the records and tenure's notes beside them.
    pub fn schema(&self) -> String {
        let user = self.login.as_ref().map_or("USER", |(user, _)| user);
        let mut text = String::from(
            "# etcd has no tables: keys are made when they are needed. Only where its users\n\
             # and roles are in force, an administrator has to run:\n\
             etcdctl role add tenure\n",
        );
        for begin in [self.prefix.clone(), format!("{NOTES}{}", self.prefix)] {
            let begin = quoted(&begin);
            let _ = writeln!(
                text,
                "etcdctl role grant-permission tenure readwrite {begin} --prefix"
            );
        }
        let _ = writeln!(text, "etcdctl user grant-role {} tenure", quoted(user));
        text
    }

    pub(crate) fn link(&self, given: Option<Channel>) -> Result<Link> {
        if self.endpoints.is_empty() && given.is_none() {
            return Err(Error::invalid(
                "no etcd server was named: give at least one host:port",
            ));
        }
        let members = match given {
            Some(_) => Vec::new(),
            None => self
                .endpoints
                .iter()
                .map(|endpoint| self.endpoint(endpoint))
                .collect::<Result<_>>()?,
        };
        let whose = match given {
            Some(_) => "etcd".to_owned(),
            None => format!("etcd at {}", self.endpoints.join(",")),
        };
        Ok(Link::new(members, self.login.clone(), given, whose))
    }

    fn endpoint(&self, host: &str) -> Result<Endpoint> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let wrong = |error: tonic::transport::Error| {
            let reason = std::error::Error::source(&error).map(ToString::to_string);
            let reason = reason.unwrap_or_else(|| error.to_string());
            Error::invalid(format!(
                "{host:?} cannot be used as an etcd server: {reason}"
            ))
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}")).map_err(wrong)?;
        let endpoint = endpoint
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(false);
        match &self.tls {
            Some(tls) => endpoint.tls_config(self.tls_config(tls)).map_err(wrong),
            None => Ok(endpoint),
        }
    }

    fn tls_config(&self, tls: &Tls) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().timeout(self.connect_timeout);
        let config = match tls.authorities_pem() {
            Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
            None => config.with_native_roots(),
        };
        match tls.identity_pem() {
            Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
            None => config,
        }
    }
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::ErrorKind;

    #[test]
    fn a_url_says_it_all() {
        let url = "etcd://me:hunter2@a,b:1,[::1]?prefix=jobs%2F&connect-timeout=500ms";
        let options = EtcdOptions::from_url(url).unwrap();
        assert_eq!(options.endpoints, ["a:2379", "b:1", "[::1]:2379"]);
        assert_eq!(options.prefix, "jobs/");
        assert_eq!(options.connect_timeout, Duration::from_millis(500));
        let shown = format!("{options:?} {}", options.schema());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(options.link(None).is_ok());
        let secure = EtcdOptions::from_url("etcds://a").unwrap();
        assert!(secure.tls.is_some());
        assert_eq!(secure.prefix, "app_runtime_leases/");
    }

    #[test]
    fn a_url_that_says_too_much_is_refused() {
        for url in [
            "etcd://",
            "redis://a",
            "etcd://a/b",
            "etcd://a?prefix=",
            "etcd://a?prefix=tenure%2Fx",
            "etcd://a?perfix=x",
            "etcd://a?tls-ca=/none",
            "etcds://a?tls-cert=/none",
            "etcd://a?connect-timeout=soon",
        ] {
            let kind = EtcdOptions::from_url(url).expect_err(url).kind();
            assert!(
                matches!(kind, ErrorKind::Invalid | ErrorKind::Misconfigured),
                "{url}"
            );
        }
    }

    #[test]
    fn the_schema_can_be_pasted_into_a_shell() {
        let options = EtcdOptions::new(["a:1"])
            .prefix("it's/")
            .login("o'neill", Secret::new("x"));
        let schema = options.schema();
        assert!(
            schema.contains(r"readwrite 'it'\''s/' --prefix"),
            "{schema}"
        );
        assert!(
            schema.contains(r"readwrite 'tenure/it'\''s/' --prefix"),
            "{schema}"
        );
        assert!(
            schema.contains(r"grant-role 'o'\''neill' tenure"),
            "{schema}"
        );
    }
}
