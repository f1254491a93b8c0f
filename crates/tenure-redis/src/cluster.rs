//! Cluster: which server has which slot, and a connection to each.
//!
//! The driver's own cluster client either follows no redirect or also sends a write
//! again whose answer was lost. Here a command is sent again only if a server said that
//! it did not run it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};
use tenure::{Error, Result};

use crate::connect::{Connector, Server};
use crate::failure::{self, Place};
use crate::said::{Said, said, text};
use crate::shared::{Shared, Used};

/// More redirects for one call mean that the servers do not agree.
const REDIRECTS_MAX: usize = 5;

#[derive(Debug)]
pub(crate) struct Cluster {
    pub connector: Connector,
    pub seeds: Vec<Server>,
    lines: Mutex<HashMap<Server, Arc<Shared>>>,
    slots: Mutex<Slots>,
}

/// Who has which slots, as far as is known.
#[derive(Clone, Debug, Default)]
struct Slots {
    ranges: Vec<(u16, u16, Server)>,
    /// Whether a server failed since: then they may have changed hands.
    stale: bool,
    /// Which one it was: it is asked last.
    failed: Option<Server>,
    /// What redirects have taught since.
    moved: HashMap<u16, Server>,
}

impl Cluster {
    pub(crate) fn new(connector: Connector, seeds: Vec<Server>) -> Self {
        Self {
            connector,
            seeds,
            lines: Mutex::default(),
            slots: Mutex::default(),
        }
    }

    /// Sends a command to the server that has its slot.
    pub(crate) async fn send(&self, slot: u16, command: &Cmd) -> Result<(Server, Said)> {
        let mut server = self.server(slot).await?;
        let mut asking = false;
        for _ in 0..=REDIRECTS_MAX {
            let used = self.line(&server).await?;
            let doubt = Doubt::new(self, &server);
            let said = send(&used, command, asking).await;
            let said = answered(&server, used, doubt, said)?;
            let Some(redirect) = said.as_ref().err().and_then(|refusal| refusal.redirect()) else {
                return Ok((server, said));
            };
            let host = match redirect.host.as_str() {
                "" => server.host.clone(),
                host => host.to_owned(),
            };
            server = Server {
                host,
                port: redirect.port,
            };
            asking = redirect.once;
            if !redirect.once {
                self.slots().moved.insert(slot, server.clone());
            }
        }
        self.doubt(&server);
        Err(Error::unreachable(format!(
            "the cluster sends a call in circles, last to {server}: try again when it has settled"
        )))
    }

    /// Sends these commands, all of one server, at once; redirects are left to the caller.
    pub(crate) async fn send_all(
        &self,
        server: &Server,
        commands: &redis::Pipeline,
    ) -> Result<Vec<Said>> {
        let used = self.line(server).await?;
        let doubt = Doubt::new(self, server);
        let values = used.line().send_all(commands).await;
        let values = answered(server, used, doubt, values)?;
        Ok(values.into_iter().map(self::said).collect())
    }

    /// Who has this slot.
    pub(crate) async fn server(&self, slot: u16) -> Result<Server> {
        if let Some(server) = self.slots().of(slot) {
            return Ok(server);
        }
        self.load_slots().await?;
        self.slots().of(slot).ok_or_else(|| {
            Error::unreachable(format!(
                "no server of the cluster has slot {slot}: see `redis-cli --cluster check`"
            ))
        })
    }

    /// All servers that have slots.
    pub(crate) async fn primaries(&self) -> Result<Vec<Server>> {
        self.load_slots().await?;
        let slots = self.slots();
        let mut servers: Vec<Server> = Vec::new();
        for (_, _, server) in &slots.ranges {
            if !servers.contains(server) {
                servers.push(server.clone());
            }
        }
        Ok(servers)
    }

    /// Those that may be asked, the best first.
    pub(crate) fn known(&self) -> Vec<Server> {
        let mut known: Vec<Server> = Vec::new();
        let slots = self.slots();
        let ranges = slots.ranges.iter().map(|(_, _, server)| server);
        for server in ranges.chain(&self.seeds) {
            if !known.contains(server) {
                known.push(server.clone());
            }
        }
        known.sort_by_key(|server| slots.failed.as_ref() == Some(server));
        known
    }

    async fn load_slots(&self) -> Result<()> {
        let mut failed = None;
        for server in self.known() {
            match self.ask_slots(&server).await {
                Ok(ranges) => {
                    *self.slots() = Slots {
                        ranges,
                        ..Slots::default()
                    };
                    return Ok(());
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| Error::invalid("no server of the cluster is named")))
    }

    async fn ask_slots(&self, server: &Server) -> Result<Vec<(u16, u16, Server)>> {
        let used = self.line(server).await?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        // A server that hangs must not keep the others from being asked.
        let asked = tokio::time::timeout(self.connector.timeout, used.line().send(&command)).await;
        let name = server.to_string();
        let place = Place {
            server: &name,
            moves: true,
        };
        let value = match asked {
            Ok(Ok(value)) => value,
            Ok(Err(_)) | Err(_) => {
                return Err(Error::unreachable(format!(
                    "Redis at {name} does not tell the cluster's slots: try again"
                )));
            }
        };
        used.answered();
        match said(value) {
            Ok(value) => ranges(&value, server).ok_or_else(|| failure::no_sense(&name)),
            Err(refusal) => Err(failure::of_greeting(place, &refusal.code, &refusal.detail)),
        }
    }

    async fn line(&self, server: &Server) -> Result<Used> {
        let shared = self.lines().entry(server.clone()).or_default().clone();
        let line = shared.get(|| self.connector.line(server)).await;
        if line.is_err() {
            // It may be gone for good, and another may have its slots.
            self.doubt(server);
            self.lines().remove(server);
        }
        line
    }

    /// Asks anew who has which slots, at the next call. Those who may be asked stay known.
    pub(crate) fn doubt(&self, server: &Server) {
        let mut slots = self.slots();
        slots.moved.clear();
        slots.stale = true;
        slots.failed = Some(server.clone());
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Server, Arc<Shared>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way. If its answer does not come, the slots may have changed hands.
struct Doubt<'a> {
    cluster: &'a Cluster,
    server: &'a Server,
    dispelled: bool,
}

impl<'a> Doubt<'a> {
    fn new(cluster: &'a Cluster, server: &'a Server) -> Self {
        Self {
            cluster,
            server,
            dispelled: false,
        }
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.dispelled {
            self.cluster.doubt(self.server);
        }
    }
}

fn answered<T>(
    server: &Server,
    used: Used,
    mut doubt: Doubt<'_>,
    answer: redis::RedisResult<T>,
) -> Result<T> {
    match answer {
        Ok(answer) => {
            used.answered();
            doubt.dispelled = true;
            Ok(answer)
        }
        Err(error) => {
            let name = server.to_string();
            let place = Place {
                server: &name,
                moves: true,
            };
            Err(failure::of_call(place, &error))
        }
    }
}

async fn send(used: &Used, command: &Cmd, asking: bool) -> redis::RedisResult<Said> {
    if !asking {
        return used.line().send(command).await.map(said);
    }
    // Together, since it counts for the next command of this connection only.
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command.clone());
    let mut values = used.line().send_all(&both).await?;
    Ok(values.pop().map_or(Ok(Value::Nil), said))
}

impl Slots {
    fn of(&self, slot: u16) -> Option<Server> {
        if self.stale {
            return None;
        }
        let moved = self.moved.get(&slot);
        let found = moved.or_else(|| {
            let mut ranges = self.ranges.iter();
            let range = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot));
            range.map(|(_, _, server)| server)
        });
        found.cloned()
    }
}

/// The answer to CLUSTER SLOTS: ranges, each with its primary first.
fn ranges(value: &Value, asked: &Server) -> Option<Vec<(u16, u16, Server)>> {
    let Value::Array(entries) = value else {
        return None;
    };
    let mut ranges = Vec::new();
    for entry in entries {
        let Value::Array(entry) = entry else {
            return None;
        };
        let number = |value: &Value| text(value)?.parse::<u16>().ok();
        let (first, last) = (number(entry.first()?)?, number(entry.get(1)?)?);
        let Value::Array(primary) = entry.get(2)? else {
            return None;
        };
        // A server that does not know its own name is where it was reached.
        let host = primary.first().and_then(text);
        let host = host.filter(|host| !host.is_empty() && host != "?");
        let host = host.unwrap_or_else(|| asked.host.clone());
        let port = number(primary.get(1)?)?;
        ranges.push((first, last, Server { host, port }));
    }
    Some(ranges)
}
