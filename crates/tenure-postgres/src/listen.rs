//! Watching: one connection that listens, shared by all watches of a store.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tenure::{Attempt, BootClock, Clock, Error, Holder, Key, Lease, Moment, Notice, Result, Token};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{Connector, Other};
use crate::failure::Place;
use crate::names::quoted;
use crate::record::{Micros, version_text};
use crate::source::Source;

/// A reader that is this far behind has enough to look at.
const NOTICES_MAX: usize = 64;
/// How long the first word may take from one connection to the other.
const PROBE_TIME_MAX: Duration = Duration::from_secs(3);
/// A way that does not carry words is not tried again for so long.
const DEAF_FOR: Duration = Duration::from_secs(600);
/// A connection without watchers is closed at most so much later.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often a pooler is asked to forget what it was made to listen for.
const UNLISTEN_TRIES: usize = 16;

/// Everybody who watches a key of this store.
pub(crate) struct Hub {
    connector: Connector,
    place: Arc<Place>,
    channel: String,
    /// How the others speak: the first word goes the same way.
    source: Source,
    probe: String,
    state: tokio::sync::Mutex<State>,
}

enum State {
    Idle,
    Listening(
        Arc<Readers>,
        #[allow(dead_code, reason = "its drop ends the connection")] Client,
    ),
    /// The way leads through something that does not carry words.
    Deaf {
        until: Moment,
        error: Error,
    },
}

/// Who reads which key. None once the connection has ended.
#[derive(Default)]
struct Readers(Mutex<Option<ByKey>>);

#[derive(Default)]
struct ByKey {
    notices: HashMap<Key, Vec<mpsc::Sender<Notice>>>,
    probes: HashMap<String, oneshot::Sender<()>>,
}

impl Hub {
    pub(crate) fn new(
        connector: Connector,
        place: Arc<Place>,
        channel: String,
        source: Source,
        probe: String,
    ) -> Self {
        Self {
            connector,
            place,
            channel,
            source,
            probe,
            state: tokio::sync::Mutex::new(State::Idle),
        }
    }

    /// The notices of this key, from now on.
    pub(crate) async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let (sender, reader) = mpsc::channel(NOTICES_MAX);
        let mut state = self.state.lock().await;
        if let State::Deaf { until, error } = &*state
            && BootClock.now() < *until
        {
            return Err(error.clone());
        }
        let joined = match &*state {
            State::Listening(readers, _) => readers.join(key, &sender),
            _ => false,
        };
        if !joined {
            *state = State::Idle;
            let (readers, client) = match self.start().await {
                Ok(started) => started,
                Err(error) => {
                    if error.kind() == tenure::ErrorKind::Unsupported {
                        let until = BootClock.now() + DEAF_FOR;
                        let error = error.clone();
                        *state = State::Deaf { until, error };
                    }
                    return Err(error);
                }
            };
            if !readers.join(key, &sender) {
                return Err(self.place.unreachable("the listening connection has ended"));
            }
            *state = State::Listening(readers, client);
        }
        drop(state);
        let notices = stream::unfold(reader, |mut reader| async {
            let notice = reader.recv().await?;
            Some((notice, reader))
        });
        Ok(notices.boxed())
    }

    /// Connects, listens, and makes sure that what others say is heard.
    async fn start(&self) -> Result<(Arc<Readers>, Client)> {
        let (client, other) = match self.connector.connect().await {
            Some(Ok(connected)) => connected,
            Some(Err(error)) => return Err(self.place.of_connect(&error)),
            None => return Err(self.place.unreachable("no connection in time")),
        };
        let readers = Arc::new(Readers(Mutex::new(Some(ByKey::default()))));
        tokio::spawn(hear(readers.clone(), other));
        let listen = format!("LISTEN {}", quoted(&self.channel));
        client
            .batch_execute(&listen)
            .await
            .map_err(|error| self.place.of_statement(&error))?;
        let word = format!("{:016x}", fastrand::Rng::new().u64(..));
        let (sender, heard) = oneshot::channel();
        readers.expect(&word, sender);
        let said = format!("probe\n{word}");
        self.source
            .run(&self.place, &self.probe, &[(&said, Type::TEXT)])
            .await?;
        if let Ok(Ok(())) = tokio::time::timeout(PROBE_TIME_MAX, heard).await {
            return Ok((readers, client));
        }
        if client.is_closed() {
            return Err(self.place.unreachable("the listening connection has ended"));
        }
        self.unlisten(&client).await;
        let error = Error::unsupported(format!(
            "{} does not pass on notifications (a pooler in transaction mode?), so waiters poll: say listen=off, or listen=HOST:PORT with the server's own address",
            self.place.url()
        ));
        tracing::warn!(%error, "cannot listen");
        Err(error)
    }

    /// Behind a pooler some connection to the server listens now that is not ours: it
    /// must not go on to tell others what they did not ask for.
    async fn unlisten(&self, client: &Client) {
        let unlisten = format!("UNLISTEN {}", quoted(&self.channel));
        for _ in 0..UNLISTEN_TRIES {
            if client.batch_execute(&unlisten).await.is_err() {
                return;
            }
        }
    }
}

impl Readers {
    /// False if the connection has ended.
    fn join(&self, key: &Key, sender: &mpsc::Sender<Notice>) -> bool {
        let mut by_key = self.lock();
        let Some(by_key) = &mut *by_key else {
            return false;
        };
        let readers = by_key.notices.entry(key.clone()).or_default();
        readers.retain(|reader| !reader.is_closed());
        readers.push(sender.clone());
        true
    }

    fn expect(&self, word: &str, sender: oneshot::Sender<()>) {
        if let Some(by_key) = &mut *self.lock() {
            by_key.probes.insert(word.to_owned(), sender);
        }
    }

    fn hear(&self, said: &str) {
        let mut by_key = self.lock();
        let Some(by_key) = &mut *by_key else {
            return;
        };
        if let Some(word) = said.strip_prefix("probe\n") {
            if let Some(sender) = by_key.probes.remove(word) {
                let _ = sender.send(());
            }
            return;
        }
        let Some((key, notice)) = notice(said) else {
            return;
        };
        let Some(readers) = by_key.notices.get_mut(&key) else {
            return;
        };
        // Full or gone: it has enough to look at, or nobody does.
        readers.retain(|reader| {
            !matches!(
                reader.try_send(notice.clone()),
                Err(mpsc::error::TrySendError::Closed(_))
            )
        });
        if readers.is_empty() {
            by_key.notices.remove(&key);
        }
    }

    /// Whether anybody still reads.
    fn is_read(&self) -> bool {
        let mut by_key = self.lock();
        let Some(by_key) = &mut *by_key else {
            return false;
        };
        by_key.notices.retain(|_, readers| {
            readers.retain(|reader| !reader.is_closed());
            !readers.is_empty()
        });
        !by_key.notices.is_empty() || !by_key.probes.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Option<ByKey>> {
        // A panic while it was locked leaves at worst a notice unsent: each is a hint.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears until the connection ends or nobody reads any more; then all streams end.
async fn hear(readers: Arc<Readers>, mut other: Other) {
    let clock = BootClock;
    loop {
        let look_at = clock.now() + IDLE_LOOK_EVERY;
        let message = tokio::select! {
            message = poll_fn(|context| other.poll(context)) => message,
            () = clock.sleep_until(look_at) => match readers.is_read() {
                true => continue,
                false => break,
            },
        };
        match message {
            Some(Ok(AsyncMessage::Notification(said))) => readers.hear(said.payload()),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "the listening connection has ended");
                break;
            }
            None => break,
        }
    }
    // The streams end with their senders; who still wants to watch asks anew.
    *readers.lock() = None;
}

impl Other {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<AsyncMessage, tokio_postgres::Error>>> {
        match self {
            Self::Tls(other) => Pin::new(other).get_mut().poll_message(context),
            Self::Plain(other) => Pin::new(other).get_mut().poll_message(context),
        }
    }
}

/// What was said, as the statements say it; of a newer version at least that there is
/// something to look at. Names have no control characters, so lines part them.
fn notice(said: &str) -> Option<(Key, Notice)> {
    let (word, rest) = said.split_once('\n')?;
    let key = Key::new(rest.rsplit_once('\n').map_or(rest, |(_, key)| key)).ok()?;
    let notice = match word {
        "free" => Notice::Free,
        "held" => held(&key, rest).map_or(Notice::Look, Notice::Held),
        _ => Notice::Look,
    };
    Some((key, notice))
}

fn held(key: &Key, rest: &str) -> Option<Lease> {
    let parts: Vec<&str> = rest.split('\n').collect();
    let [token, ttl_ns, attempt, acquired, expires, holder, _] = parts.as_slice() else {
        return None;
    };
    let ttl = Duration::from_nanos(ttl_ns.parse().ok()?);
    let token = Token(token.parse().ok()?);
    Some(Lease {
        key: key.clone(),
        holder: Holder::new(holder).ok()?,
        token,
        attempt: Some(Attempt::from_u64(attempt.parse().ok()?)),
        ttl,
        // It had just begun.
        rest: Some(ttl),
        acquired_at: Micros(acquired.parse().ok()?).system_time(),
        version: version_text(token, Micros(expires.parse().ok()?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let key = Key::new("a b/c").unwrap();
        assert_eq!(notice("free\na b/c"), Some((key.clone(), Notice::Free)));
        assert_eq!(notice("look\na b/c"), Some((key.clone(), Notice::Look)));
        let said = "held\n17\n1500000000\n99\n1000000\n2500000\nholder: one\na b/c";
        let Some((found, Notice::Held(lease))) = notice(said) else {
            panic!("{:?}", notice(said));
        };
        assert_eq!((&found, &lease.key), (&key, &key));
        assert_eq!(lease.holder.as_str(), "holder: one");
        assert_eq!(
            (lease.token, lease.ttl),
            (Token(17), Duration::from_millis(1500))
        );
        assert_eq!(lease.attempt, Some(Attempt::from_u64(99)));
        assert_eq!(lease.version.as_str(), "17.2500000");
    }

    #[test]
    fn what_is_not_understood_is_a_reason_to_look_or_nothing() {
        let key = Key::new("k").unwrap();
        for odd in [
            "held\nx\nk",
            "held\nk",
            "newer\nthing\nk",
            "held\n1\n2\n3\n4\n5\n\nk",
        ] {
            assert_eq!(notice(odd), Some((key.clone(), Notice::Look)), "{odd:?}");
        }
        for nothing in ["", "free", "free\n", "look\n\u{7}"] {
            assert_eq!(notice(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_reader_that_is_gone_is_forgotten() {
        let readers = Readers(Mutex::new(Some(ByKey::default())));
        let key = Key::new("k").unwrap();
        let (sender, mut reader) = mpsc::channel(1);
        assert!(readers.join(&key, &sender));
        drop(sender);
        readers.hear("free\nk");
        readers.hear("free\nk");
        readers.hear("free\nother");
        assert_eq!(reader.try_recv(), Ok(Notice::Free), "one has a place");
        assert!(reader.try_recv().is_err());
        assert!(readers.is_read());
        drop(reader);
        assert!(!readers.is_read());
        *readers.lock() = None;
        let (sender, _reader) = mpsc::channel(1);
        assert!(!readers.join(&key, &sender), "it has ended");
    }
}
