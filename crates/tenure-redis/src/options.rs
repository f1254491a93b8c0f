//! How the store is set up: plain data, or a URL.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Error, Result};
use tenure_net::{Host, Secret, StoreUrl, Tls, Verify};

use crate::cluster::Cluster;
use crate::connect::{Connector, Login, Server};
use crate::names::{OWN, pattern};
use crate::reach::{Primary, PrimaryPlace, Reach};
use crate::sentinel::Sentinels;

/// What the names of records begin with, unless told otherwise.
pub(crate) const PREFIX: &str = "app_runtime_leases:";
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How a [`RedisStore`](crate::RedisStore) reaches its server.
#[derive(Clone, Debug)]
#[must_use = "these are only the options: open a store with them"]
pub struct RedisOptions {
    servers: Vec<Server>,
    topology: Topology,
    user: Option<String>,
    password: Option<Secret>,
    sentinel_user: Option<String>,
    sentinel_password: Option<Secret>,
    database: u32,
    tls: Option<Tls>,
    prefix: String,
    connect_timeout: Duration,
}

/// Who decides which server has the leases.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Topology {
    One,
    Sentinel(String),
    Cluster,
}

impl RedisOptions {
    /// One server.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        let host = host.into();
        Self::of(vec![Server { host, port }], Topology::One)
    }

    /// Several Sentinels, and the name of the primary that they watch.
    pub fn sentinel(
        sentinels: impl IntoIterator<Item = (String, u16)>,
        name: impl Into<String>,
    ) -> Self {
        Self::of(servers(sentinels), Topology::Sentinel(name.into()))
    }

    /// Some servers of a Cluster; the others are found through them.
    pub fn cluster(seeds: impl IntoIterator<Item = (String, u16)>) -> Self {
        Self::of(servers(seeds), Topology::Cluster)
    }

    fn of(servers: Vec<Server>, topology: Topology) -> Self {
        Self {
            servers,
            topology,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            database: 0,
            tls: None,
            prefix: PREFIX.to_owned(),
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// From a URL:
    ///
    /// - `redis://user:password@host:6379/database`, `rediss://…` with TLS
    /// - `redis+sentinel://host:26379,host:26379/name/database`
    /// - `redis+cluster://host:6379,host:6379`
    ///
    /// with the options `prefix`, `tls`, `tls-ca`, `tls-cert`, `tls-key`,
    /// `password-file`, `connect-timeout`, and for Sentinels that want a log-in
    /// `sentinel-user` and `sentinel-password-file`.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        let mut options = match url.scheme() {
            "redis" | "rediss" => one(&url)?,
            "redis+sentinel" => sentinel(&mut url)?,
            "redis+cluster" => cluster(&url)?,
            other => {
                return Err(Error::invalid(format!(
                    "\"{other}:\" is no scheme of Redis: write redis://, rediss://, redis+sentinel:// or redis+cluster://"
                )));
            }
        };
        let always = url.scheme() == "rediss";
        let tls_on = url.take_switch("tls")?;
        if always && tls_on == Some(false) {
            return Err(Error::invalid(
                "rediss:// means TLS: leave out tls=off, or write redis://",
            ));
        }
        let tls = Tls::from_url(&mut url)?;
        if always || tls_on == Some(true) {
            options.tls = Some(tls);
        } else if !tls.is_default() {
            return Err(Error::invalid(
                "tls-ca, tls-cert and tls-key mean nothing without TLS: write rediss:// or tls=on",
            ));
        }
        if let Some(prefix) = url.take("prefix") {
            check_prefix(&prefix)?;
            options.prefix = prefix;
        }
        if let Some(timeout) = url.take_duration("connect-timeout")? {
            options.connect_timeout = timeout;
        }
        options.user = url.user().map(str::to_owned);
        options.password = url.take_password()?;
        if options.user.is_some() && options.password.is_none() {
            return Err(Error::invalid(
                "the Redis URL has a user but no password: give one in the URL, by password-file=, TENURE_STORE_PASSWORD_FILE or TENURE_STORE_PASSWORD",
            ));
        }
        url.finish()?;
        Ok(options)
    }

    /// The password, and whose it is if not the default user's.
    pub fn login(mut self, user: Option<String>, password: Secret) -> Self {
        self.user = user;
        self.password = Some(password);
        self
    }

    /// The number of the database, on one server or by Sentinel.
    pub fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// TLS to every server and Sentinel.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// What the names of records begin with; `app_runtime_leases:` if not given.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long making a connection may take; two seconds if not given.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// What has to be there, for people to run: nothing but a user with these rights.
    pub fn schema(&self) -> String {
        let begin = pattern(&self.prefix);
        let user = self.user.as_deref().unwrap_or("tenure");
        let mut commands = vec![
            "ping",
            "time",
            "get",
            "psetex",
            "pexpire",
            "pexpireat",
            "pexpiretime",
            "pttl",
            "del",
            "hmget",
            "hset",
            "evalsha",
            "eval",
            "scan",
            "publish",
            "subscribe",
            "unsubscribe",
        ];
        match &self.topology {
            Topology::Cluster => commands.extend(["asking", "cluster|slots"]),
            Topology::Sentinel(_) => commands.extend(["select", "role"]),
            Topology::One => commands.push("select"),
        }
        let own = ["{", ":", "#{*}"].map(|form| format!("{OWN}{form}{begin}"));
        let mut words = vec!["on".to_owned(), ">CHANGE-ME".into(), "resetkeys".into()];
        words.push(format!("~{begin}"));
        words.extend(own.iter().map(|name| format!("~{name}")));
        words.push("resetchannels".into());
        words.extend(own.iter().map(|name| format!("&{name}")));
        if self.topology != Topology::Cluster {
            let database = self.database;
            words.push(format!("&__keyspace@{database}__:{begin}"));
        }
        words.push("-@all".into());
        words.extend(commands.iter().map(|command| format!("+{command}")));
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        format!(
            "# Redis needs nothing created. This makes a user with just the rights that leases need\n\
             # (Redis 7 or Valkey, on every server; on Redis 6 leave out +pexpiretime):\n\
             redis-cli ACL SETUSER {} {}\n",
            quoted(user),
            words.join(" ")
        )
    }

    pub(crate) fn into_reach(self) -> Result<(String, Reach)> {
        check_prefix(&self.prefix)?;
        if self.servers.is_empty() {
            return Err(Error::invalid("no Redis server is named: name one"));
        }
        if self.topology == Topology::Cluster && self.database != 0 {
            return Err(Error::invalid(
                "a Redis Cluster has database 0 only: leave the number out",
            ));
        }
        let tls = match &self.tls {
            Some(tls) => Some(Arc::new(tls.client_config(Verify::Full)?)),
            None => None,
        };
        let connector = Connector {
            login: Login {
                user: self.user,
                password: self.password,
            },
            database: i64::from(self.database),
            tls,
            timeout: self.connect_timeout,
            moves: self.topology != Topology::One,
        };
        let mut servers = self.servers.into_iter();
        let place = match self.topology {
            Topology::Cluster => {
                let cluster = Cluster::new(connector, servers.collect());
                return Ok((self.prefix, Reach::Cluster(cluster)));
            }
            Topology::Sentinel(name) => PrimaryPlace::By(Sentinels {
                servers: servers.collect(),
                name,
                connector: Connector {
                    login: Login {
                        user: self.sentinel_user,
                        password: self.sentinel_password,
                    },
                    database: 0,
                    ..connector.clone()
                },
            }),
            Topology::One => match (servers.next(), servers.next()) {
                (Some(server), None) => PrimaryPlace::At(server),
                _ => return Err(several()),
            },
        };
        let primary = Primary {
            connector,
            place,
            shared: Arc::default(),
        };
        Ok((self.prefix, Reach::Primary(primary)))
    }
}

fn servers(named: impl IntoIterator<Item = (String, u16)>) -> Vec<Server> {
    let named = named.into_iter();
    named.map(|(host, port)| Server { host, port }).collect()
}

fn of_hosts(hosts: &[Host], port: u16) -> Vec<Server> {
    if hosts.is_empty() {
        let host = "localhost".to_owned();
        return vec![Server { host, port }];
    }
    let named = hosts.iter().map(|host| Server {
        host: host.name.clone(),
        port: host.port.unwrap_or(port),
    });
    named.collect()
}

fn several() -> Error {
    Error::invalid(
        "redis:// names one server: for several use redis+sentinel:// or redis+cluster://",
    )
}

fn one(url: &StoreUrl) -> Result<RedisOptions> {
    let servers = of_hosts(url.hosts(), PORT);
    if servers.len() > 1 {
        return Err(several());
    }
    let mut options = RedisOptions::of(servers, Topology::One);
    options.database = number(url.path())?;
    Ok(options)
}

fn sentinel(url: &mut StoreUrl) -> Result<RedisOptions> {
    let path = url.path().to_owned();
    let (name, database) = path.split_once('/').unwrap_or((&path, ""));
    if name.is_empty() {
        return Err(Error::invalid(
            "the redis+sentinel: URL does not name the primary: write redis+sentinel://host:26379/mymaster",
        ));
    }
    let servers = of_hosts(url.hosts(), SENTINEL_PORT);
    let mut options = RedisOptions::of(servers, Topology::Sentinel(name.to_owned()));
    options.database = number(database)?;
    options.sentinel_user = url.take("sentinel-user");
    if let Some(path) = url.take("sentinel-password-file") {
        options.sentinel_password = Some(Secret::from_file(path)?);
    }
    if options.sentinel_user.is_some() && options.sentinel_password.is_none() {
        return Err(Error::invalid(
            "sentinel-user needs a password: name its file with sentinel-password-file",
        ));
    }
    Ok(options)
}

fn cluster(url: &StoreUrl) -> Result<RedisOptions> {
    if number(url.path())? != 0 {
        return Err(Error::invalid(
            "a Redis Cluster has database 0 only: leave the number out",
        ));
    }
    let servers = of_hosts(url.hosts(), PORT);
    Ok(RedisOptions::of(servers, Topology::Cluster))
}

fn number(path: &str) -> Result<u32> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(0);
    }
    let number = path.parse().ok();
    number.filter(|_| !path.starts_with('+')).ok_or_else(|| {
        Error::invalid("what stands behind the server in a Redis URL is the number of the database: write it as redis://host/0")
    })
}

pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.is_empty() {
        return Err(Error::invalid(
            "the prefix is empty: leases need one, so that they are not mixed with other keys",
        ));
    }
    if prefix.starts_with(OWN) {
        return Err(Error::invalid(format!(
            "the prefix begins with \"{OWN}\", as the names of tenure's own hashes do: choose another"
        )));
    }
    if prefix.chars().any(char::is_control) {
        return Err(Error::invalid(
            "the prefix has a control character in it: leave it out",
        ));
    }
    Ok(())
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-_@:.".contains(c);
    if word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::ErrorKind;

    fn reach(url: &str) -> String {
        let options = RedisOptions::from_url(url).unwrap();
        let (prefix, reach) = options.into_reach().unwrap();
        format!("{prefix} {reach} {}", reach.database())
    }

    #[test]
    fn urls_are_understood() {
        let prefix = "app_runtime_leases:";
        assert_eq!(reach("redis://"), format!("{prefix} localhost:6379 0"));
        assert_eq!(reach("redis://h/3"), format!("{prefix} h:6379 3"));
        assert_eq!(
            reach("redis://me:pw@[::1]:7000?prefix=a%2Fb:"),
            "a/b: [::1]:7000 0"
        );
        assert_eq!(reach("rediss://h"), format!("{prefix} h:6379 0"));
        assert_eq!(
            reach("redis+sentinel://a,b:1/mymaster/2"),
            format!("{prefix} mymaster 2")
        );
        assert_eq!(
            reach("redis+cluster://a,b:1?tls=on"),
            format!("{prefix} the cluster of a:6379 0")
        );
    }

    #[test]
    fn urls_that_cannot_be_are_refused() {
        for url in [
            "redis://a,b",
            "redis://a/x",
            "redis://a/+1",
            "redis://a?prefix=",
            "redis://a?prefix=tenure:x",
            "redis://a?tls-cert=x",
            "redis://a?prefxi=x",
            "rediss://a?tls=off",
            "redis://me@a",
            "redis+sentinel://a",
            "redis+cluster://a/1",
            "memcached://a",
        ] {
            let error = RedisOptions::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let options = RedisOptions::from_url("redis://me:hunter2@h").unwrap();
        assert!(!format!("{options:?}").contains("hunter2"));
        assert!(!options.schema().contains("hunter2"));
        let store = crate::RedisStore::open(options).unwrap();
        assert!(!format!("{store:?}").contains("hunter2"));
    }

    #[test]
    fn the_schema_names_just_what_is_needed() {
        let schema = RedisOptions::new("h", 1).prefix("it's*:").schema();
        assert!(schema.contains(r"'~it'\''s\*:*'"), "{schema}");
        assert!(schema.contains("'>CHANGE-ME'"), "{schema}");
        let cluster = RedisOptions::cluster([("h".into(), 1)]).schema();
        assert!(cluster.contains("+cluster|slots") || cluster.contains("'+cluster|slots'"));
    }
}
