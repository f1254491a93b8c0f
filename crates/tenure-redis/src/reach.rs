//! The way to the server that has a lease: one server, Sentinel, Cluster, or a
//! connection that the caller has brought.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use redis::aio::{ConnectionLike, PubSub};
use redis::{Cmd, RedisResult, Value};
use tenure::{Error, Result};

use crate::cluster::Cluster;
use crate::connect::{Connector, Line, Server};
use crate::failure::{self, Place};
use crate::said::{Refusal, Said, said};
use crate::sentinel::Sentinels;
use crate::shared::{Shared, Used};

/// How many commands travel together at most.
const BATCH_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) enum Reach {
    /// One primary: named, or found by Sentinel.
    Primary(Primary),
    Cluster(Cluster),
    /// What the caller has brought.
    Given(Given),
}

#[derive(Debug)]
pub(crate) struct Primary {
    pub connector: Connector,
    pub place: PrimaryPlace,
    pub shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) enum PrimaryPlace {
    At(Server),
    By(Sentinels),
}

pub(crate) struct Given {
    connection: Box<dyn Sends>,
    /// For what is pushed.
    pub client: Option<redis::Client>,
    pub database: i64,
    /// Whether it is one server, whose keys can be listed.
    pub one_server: bool,
}

/// What `ConnectionLike` is when it can be shared.
trait Sends: Send + Sync {
    fn send<'a>(&self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Sends for C {
    fn send<'a>(&self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let mut connection = self.clone();
        async move { connection.req_packed_command(command).await }.boxed()
    }
}

/// A part of the keys, for those who have to see all of them.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    All,
    Of(Server),
}

impl Reach {
    pub(crate) fn database(&self) -> i64 {
        match self {
            Reach::Primary(primary) => primary.connector.database,
            Reach::Cluster(_) => 0,
            Reach::Given(given) => given.database,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        match self {
            Reach::Primary(_) => false,
            Reach::Cluster(_) => true,
            Reach::Given(given) => !given.one_server,
        }
    }

    /// Sends a command, once. An answer that says that it did not run may be followed by
    /// another try elsewhere; nothing else is.
    pub(crate) async fn send(&self, slot: u16, command: &Cmd) -> Result<Said> {
        let said = match self {
            Reach::Primary(primary) => primary.send(command).await?,
            Reach::Given(given) => given.send(command).await?,
            Reach::Cluster(cluster) => {
                let (server, said) = cluster.send(slot, command).await?;
                if is_replica(&said) {
                    cluster.doubt(&server);
                }
                said
            }
        };
        Ok(said)
    }

    /// Sends many commands, those to one server together.
    pub(crate) async fn send_many(&self, commands: &[(u16, Cmd)]) -> Vec<Result<Said>> {
        match self {
            Reach::Primary(primary) => {
                let mut all = Vec::with_capacity(commands.len());
                for batch in commands.chunks(BATCH_MAX) {
                    all.extend(primary.send_all(batch).await);
                }
                all
            }
            Reach::Given(given) => {
                let mut all = Vec::with_capacity(commands.len());
                for batch in commands.chunks(BATCH_MAX) {
                    let batch = batch.iter().map(|(_, command)| given.send(command));
                    all.extend(join_all(batch).await);
                }
                all
            }
            Reach::Cluster(cluster) => send_many(cluster, commands).await,
        }
    }

    /// The parts that have all keys between them.
    pub(crate) async fn parts(&self) -> Result<Vec<Part>> {
        match self {
            Reach::Primary(_) | Reach::Given(_) => Ok(vec![Part::All]),
            Reach::Cluster(cluster) => {
                let primaries = cluster.primaries().await?;
                Ok(primaries.into_iter().map(Part::Of).collect())
            }
        }
    }

    /// Sends a command to one part.
    pub(crate) async fn send_to(&self, part: &Part, command: &Cmd) -> Result<Said> {
        match (self, part) {
            (Reach::Cluster(cluster), Part::Of(server)) => {
                let mut one = redis::pipe();
                one.add_command(command.clone());
                let mut all = cluster.send_all(server, &one).await?;
                all.pop()
                    .ok_or_else(|| failure::no_sense(&server.to_string()))
            }
            _ => self.send(0, command).await,
        }
    }

    /// Makes an error of what a server said.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Error {
        let name = self.to_string();
        let moves = match self {
            Reach::Primary(primary) => primary.connector.moves,
            Reach::Cluster(_) => true,
            Reach::Given(_) => false,
        };
        let place = Place {
            server: &name,
            moves,
        };
        failure::of_answer(place, &refusal.code, &refusal.detail)
    }

    /// Whether changes can be pushed.
    pub(crate) fn can_push(&self) -> bool {
        !matches!(self, Reach::Given(given) if given.client.is_none())
    }

    /// Whether what a server tells of its own keys reaches every connection.
    pub(crate) fn tells_of_keys(&self) -> bool {
        !self.is_cluster()
    }

    /// A connection for what is pushed.
    pub(crate) async fn pushes(&self) -> Result<PubSub> {
        match self {
            Reach::Primary(primary) => {
                let server = match &primary.place {
                    PrimaryPlace::At(server) => server.clone(),
                    PrimaryPlace::By(sentinels) => sentinels.primary().await?,
                };
                primary.connector.pushes(&server).await
            }
            // What is published goes to all servers, so any will do.
            Reach::Cluster(cluster) => {
                let mut failed = None;
                for server in cluster.known() {
                    match cluster.connector.pushes(&server).await {
                        Ok(pushes) => return Ok(pushes),
                        Err(error) => failed = Some(error),
                    }
                }
                Err(failed.unwrap_or_else(|| Error::invalid("no server of the cluster is named")))
            }
            Reach::Given(given) => {
                let Some(client) = &given.client else {
                    return Err(Error::unsupported("there is no client to make one with"));
                };
                client.get_async_pubsub().await.map_err(|error| {
                    Error::unreachable(format!(
                        "no connection for pushed changes can be made ({}): try again",
                        error.category()
                    ))
                })
            }
        }
    }
}

async fn send_many(cluster: &Cluster, commands: &[(u16, Cmd)]) -> Vec<Result<Said>> {
    let mut groups: Vec<(Server, Vec<usize>)> = Vec::new();
    let mut answers: Vec<Option<Result<Said>>> = Vec::new();
    for (index, (slot, _)) in commands.iter().enumerate() {
        answers.push(None);
        match cluster.server(*slot).await {
            Ok(server) => match groups
                .iter_mut()
                .find(|(of, group)| *of == server && group.len() < BATCH_MAX)
            {
                Some((_, group)) => group.push(index),
                None => groups.push((server, vec![index])),
            },
            Err(error) => answers[index] = Some(Err(error)),
        }
    }
    let sent = join_all(groups.iter().map(|(server, group)| async move {
        let mut batch = redis::pipe();
        for index in group {
            batch.add_command(commands[*index].1.clone());
        }
        cluster.send_all(server, &batch).await
    }))
    .await;
    for ((_, group), sent) in groups.iter().zip(sent) {
        for (at, index) in group.iter().enumerate() {
            let answer = match &sent {
                // Not run there: once more, and followed to where it runs.
                Ok(all) if all.get(at).is_some_and(is_elsewhere) => {
                    let (slot, command) = &commands[*index];
                    cluster.send(*slot, command).await.map(|(_, said)| said)
                }
                Ok(all) => Ok(all.get(at).cloned().unwrap_or(Ok(Value::Nil))),
                Err(error) => Err(error.clone()),
            };
            answers[*index] = Some(answer);
        }
    }
    answers
        .into_iter()
        .map(|answer| answer.unwrap_or_else(|| Err(failure::no_sense("the cluster"))))
        .collect()
}

fn is_elsewhere(said: &Said) -> bool {
    matches!(said, Err(refusal) if refusal.redirect().is_some())
}

fn is_replica(said: &Said) -> bool {
    // Before Redis 7 it stands within the text of an error of the script.
    matches!(said, Err(refusal) if refusal.code == "READONLY" || refusal.detail.contains("READONLY"))
}

impl Primary {
    async fn used(&self) -> Result<Used> {
        self.shared.get(|| self.open()).await
    }

    async fn open(&self) -> Result<Line> {
        match &self.place {
            PrimaryPlace::At(server) => self.connector.line(server).await,
            PrimaryPlace::By(sentinels) => sentinels.line(&self.connector).await,
        }
    }

    async fn send(&self, command: &Cmd) -> Result<Said> {
        let used = self.used().await?;
        let answer = used.line().send(command).await;
        let said = match answer {
            Ok(value) => said(value),
            Err(error) => return Err(self.failed(&used, &error)),
        };
        // A server that is no primary any more is looked for anew, by name or Sentinel.
        if !is_replica(&said) {
            used.answered();
        }
        Ok(said)
    }

    async fn send_all(&self, commands: &[(u16, Cmd)]) -> Vec<Result<Said>> {
        let all_failed = |error: Error| commands.iter().map(|_| Err(error.clone())).collect();
        let used = match self.used().await {
            Ok(used) => used,
            Err(error) => return all_failed(error),
        };
        let mut batch = redis::pipe();
        for (_, command) in commands {
            batch.add_command(command.clone());
        }
        let answer = used.line().send_all(&batch).await;
        match answer {
            Ok(values) if values.len() == commands.len() => {
                let all: Vec<Said> = values.into_iter().map(said).collect();
                if !all.iter().any(is_replica) {
                    used.answered();
                }
                all.into_iter().map(Ok).collect()
            }
            Ok(_) => all_failed(failure::no_sense(&used.line().server.to_string())),
            Err(error) => all_failed(self.failed(&used, &error)),
        }
    }

    fn failed(&self, used: &Used, error: &redis::RedisError) -> Error {
        let name = used.line().server.to_string();
        let place = Place {
            server: &name,
            moves: self.connector.moves,
        };
        failure::of_call(place, error)
    }
}

impl Given {
    pub(crate) fn new<C>(connection: C, one_server: bool) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self {
            database: connection.get_db(),
            connection: Box::new(connection),
            client: None,
            one_server,
        }
    }

    async fn send(&self, command: &Cmd) -> Result<Said> {
        match self.connection.send(command).await {
            Ok(value) => Ok(said(value)),
            Err(error) => match Refusal::of(&error) {
                Some(refusal) => Ok(Err(refusal)),
                // Whether it was sent is known to the driver alone.
                None => Err(Error::unavailable(format!(
                    "the call to Redis failed ({}): try again",
                    error.category()
                ))),
            },
        }
    }
}

/// Where it leads, without user and password.
impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reach::Primary(primary) => match &primary.place {
                PrimaryPlace::At(server) => server.fmt(f),
                PrimaryPlace::By(sentinels) => f.write_str(&sentinels.name),
            },
            Reach::Cluster(cluster) => match cluster.seeds.first() {
                Some(seed) => write!(f, "the cluster of {seed}"),
                None => f.write_str("the cluster"),
            },
            Reach::Given(_) => f.write_str("the given connection"),
        }
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given")
            .field("database", &self.database)
            .field("one_server", &self.one_server)
            .finish_non_exhaustive()
    }
}
