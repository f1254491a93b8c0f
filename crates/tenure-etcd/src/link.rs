//! The way to etcd: one member at a time, one HTTP/2 connection to it, and the auth token.
//!
//! A call is sent once. It is sent to another member only if it surely was not carried out
//! by the first: no connection came about, or the member refused it before doing anything.
//! tonic's own balancer is not used, because it does not tell which member was asked.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::Stream;
use futures_util::StreamExt;
use prost::Message;
use tenure::Error;
use tenure_net::Secret;
use tokio::runtime::{Handle, Id};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::failure::{Cure, Failure, cure};
use crate::proto::{AuthenticateRequest, AuthenticateResponse};

/// The largest answer that is read: a page of leases is far smaller.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

type Token = MetadataValue<Ascii>;

pub(crate) struct Link {
    members: Vec<Endpoint>,
    /// Who we are, if etcd is to be told.
    login: Option<(String, Secret)>,
    token: Mutex<Option<Token>>,
    current: Mutex<Current>,
    /// A connection of the caller's, who looks after it.
    given: Option<Channel>,
    /// How errors call it.
    whose: String,
}

/// Runtimes come and go; more connections than this are none that is in use.
const CHANNELS_MAX: usize = 8;

/// The member in use. What is wrong with it is noted by its number, so that a late
/// complaint about an earlier one does not cost the present one.
struct Current {
    number: u64,
    member: usize,
    /// One for each runtime, which drives it: an elector's thread must not have to wait
    /// for a runtime whose own thread is busy.
    channels: HashMap<Id, Channel>,
}

impl Link {
    pub(crate) fn new(
        members: Vec<Endpoint>,
        login: Option<(String, Secret)>,
        given: Option<Channel>,
        whose: String,
    ) -> Self {
        Self {
            members,
            login,
            token: Mutex::new(None),
            current: Mutex::new(Current {
                number: 0,
                member: 0,
                channels: HashMap::new(),
            }),
            given,
            whose,
        }
    }

    pub(crate) fn whose(&self) -> &str {
        &self.whose
    }

    /// One request, one answer.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut tries = Tries::new(self);
        loop {
            let token = self.token().await?;
            let (mut grpc, number) = self.grpc();
            let request = with_metadata(message.clone(), token.clone());
            let mut guard = Guard::on(self, number);
            let codec = ProstCodec::<Q, A>::default();
            let answer = match ready(&mut grpc).await {
                Ok(()) => {
                    grpc.unary(request, PathAndQuery::from_static(path), codec)
                        .await
                }
                Err(status) => Err(status),
            };
            guard.done = true;
            match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => self.cured(&status, &mut tries, number, token)?,
            }
        }
    }

    /// Some requests, and a stream of answers that has begun. The stream of requests stays
    /// open if `open` says so.
    pub(crate) async fn stream<Q, A>(
        &self,
        path: &'static str,
        messages: Vec<Q>,
        open: bool,
    ) -> Result<Answers<A>, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut tries = Tries::new(self);
        loop {
            let token = self.token().await?;
            let (mut grpc, number) = self.grpc();
            let request = with_metadata(requests(messages.clone(), open), token.clone());
            let mut guard = Guard::on(self, number);
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(path);
            let answer = match ready(&mut grpc).await {
                Ok(()) => grpc.streaming(request, path, codec).await,
                Err(status) => Err(status),
            };
            guard.done = true;
            match answer {
                Ok(answer) => {
                    let answers = answer.into_inner();
                    return Ok(Answers {
                        answers,
                        number,
                        open,
                    });
                }
                Err(status) => self.cured(&status, &mut tries, number, token)?,
            }
        }
    }

    /// The next answer of a stream; None when the server has ended it.
    pub(crate) async fn next<A>(&self, stream: &mut Answers<A>) -> Result<Option<A>, Failure> {
        let mut guard = Guard::on(self, stream.number);
        // Whoever stops watching has not been kept waiting.
        guard.done = stream.open;
        let answer = stream.answers.message().await;
        guard.done = true;
        answer.map_err(|status| {
            if let Cure::GiveUp { leave: true } | Cure::AnotherMember = cure(&status) {
                self.leave(stream.number);
            }
            Failure::of(&status, &self.whose)
        })
    }

    /// Whether the call may be sent again, since it surely was not carried out; else how
    /// it failed.
    fn cured(
        &self,
        status: &Status,
        tries: &mut Tries,
        number: u64,
        token: Option<Token>,
    ) -> Result<(), Failure> {
        match cure(status) {
            Cure::AnotherMember => {
                self.leave(number);
                tries.members_left = tries.members_left.saturating_sub(1);
                if tries.members_left > 0 {
                    return Ok(());
                }
            }
            Cure::NewToken if self.login.is_some() && tries.logins_left > 0 => {
                tries.logins_left -= 1;
                self.forget(token);
                return Ok(());
            }
            Cure::GiveUp { leave: true } => self.leave(number),
            Cure::GiveUp { leave: false } | Cure::NewToken => {}
        }
        Err(Failure::of(status, &self.whose))
    }

    // Connections

    fn grpc(&self) -> (Grpc<Channel>, u64) {
        let mut current = self.current();
        let channel = match &self.given {
            Some(channel) => channel.clone(),
            None => self.channel(&mut current),
        };
        let grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        (grpc, current.number)
    }

    fn channel(&self, current: &mut Current) -> Channel {
        let runtime = Handle::current().id();
        if let Some(channel) = current.channels.get(&runtime) {
            return channel.clone();
        }
        if current.channels.len() >= CHANNELS_MAX {
            current.channels.clear();
        }
        let channel = self.members[current.member].connect_lazy();
        current.channels.insert(runtime, channel.clone());
        channel
    }

    /// Leaves this member's connections for those to the next. Who still waits goes on.
    fn leave(&self, number: u64) {
        let mut current = self.current();
        if current.number != number || self.given.is_some() {
            return;
        }
        current.number += 1;
        current.member = (current.member + 1) % self.members.len();
        current.channels.clear();
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // No step under the lock can leave it half done.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Who we are

    async fn token(&self) -> Result<Option<Token>, Failure> {
        let Some((name, password)) = &self.login else {
            return Ok(None);
        };
        let known = self.known_token().clone();
        if known.is_some() {
            return Ok(known);
        }
        // Two calls at once may both log in: nobody waits for another's runtime.
        let token = self.log_in(name, password).await?;
        self.known_token().clone_from(&token);
        Ok(token)
    }

    async fn log_in(&self, name: &str, password: &Secret) -> Result<Option<Token>, Failure> {
        let mut members_left = self.members.len();
        loop {
            let (mut grpc, number) = self.grpc();
            let request = AuthenticateRequest {
                name: name.to_owned(),
                password: password.expose().to_owned(),
            };
            let mut guard = Guard::on(self, number);
            let codec = ProstCodec::<AuthenticateRequest, AuthenticateResponse>::default();
            let path = PathAndQuery::from_static(AUTHENTICATE);
            let answer = match ready(&mut grpc).await {
                Ok(()) => grpc.unary(with_metadata(request, None), path, codec).await,
                Err(status) => Err(status),
            };
            guard.done = true;
            let status = match answer {
                Ok(answer) => return self.as_metadata(&answer.into_inner().token),
                Err(status) => status,
            };
            // As etcd's own clients do: a server that asks nobody is told nothing.
            if status.message().contains("authentication is not enabled") {
                tracing::warn!("{} asks for no password, though one was given", self.whose);
                return Ok(None);
            }
            // Logging in changes nothing, so that any member may be asked again.
            if let Cure::AnotherMember | Cure::GiveUp { leave: true } = cure(&status) {
                self.leave(number);
                members_left = members_left.saturating_sub(1);
                if members_left > 0 {
                    continue;
                }
                let reason = Error::from(Failure::of(&status, &self.whose));
                let unsent = match reason.kind() {
                    tenure::ErrorKind::Unavailable => Error::unreachable(reason.to_string()),
                    _ => reason,
                };
                return Err(Failure::Other(unsent));
            }
            return Err(Failure::of(&status, &self.whose));
        }
    }

    fn as_metadata(&self, token: &str) -> Result<Option<Token>, Failure> {
        let value = token.parse::<Token>().map_err(|_| {
            let whose = &self.whose;
            Failure::Other(Error::unreachable(format!(
                "{whose} gave an auth token that cannot be sent back"
            )))
        })?;
        Ok(Some(value))
    }

    fn forget(&self, refused: Option<Token>) {
        let mut token = self.known_token();
        if *token == refused {
            *token = None;
        }
    }

    fn known_token(&self) -> MutexGuard<'_, Option<Token>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a call that was not carried out may be sent again.
struct Tries {
    members_left: usize,
    logins_left: usize,
}

impl Tries {
    fn new(link: &Link) -> Self {
        Self {
            members_left: link.members.len(),
            logins_left: 2,
        }
    }
}

/// Answers that come one by one over one connection.
pub(crate) struct Answers<A> {
    answers: Streaming<A>,
    number: u64,
    /// It may be silent for long, as a watch is.
    open: bool,
}

/// Gives up the connection of a call that is dropped half way: it may be dead, and the
/// next call must not have to wait for the same.
struct Guard<'a> {
    link: &'a Link,
    number: u64,
    done: bool,
}

impl<'a> Guard<'a> {
    fn on(link: &'a Link, number: u64) -> Self {
        Self {
            link,
            number,
            done: false,
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.link.leave(self.number);
        }
    }
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::from_error(error.into()))
}

fn with_metadata<T>(message: T, token: Option<Token>) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    // A member that has lost its leader says so at once, instead of letting us wait.
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("token", token);
    }
    request
}

fn requests<Q: Send + 'static>(
    messages: Vec<Q>,
    open: bool,
) -> impl Stream<Item = Q> + Send + 'static {
    let last = match open {
        true => futures_util::stream::pending().left_stream(),
        false => futures_util::stream::empty().right_stream(),
    };
    futures_util::stream::iter(messages).chain(last)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.whose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let request = AuthenticateRequest {
            name: "me".into(),
            password: "hunter2".into(),
        };
        let answer = AuthenticateResponse {
            token: "hunter2".into(),
        };
        assert!(!format!("{request:?} {answer:?}").contains("hunter2"));
    }
}
