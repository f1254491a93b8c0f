//! A proxy that breaks the network before a server, on demand.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::connection;
use crate::ports::Port;
use crate::wait::{SERVER_LIMIT, wait_until};
use crate::wire::Wire;

/// One way through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server answers.
    ToClient,
}

/// What has gone through a proxy since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Connections that were accepted.
    pub connections: u64,
    /// Those that are open now.
    pub open: u64,
    /// Bytes handed to the server.
    pub bytes_to_server: u64,
    /// Bytes handed to clients.
    pub bytes_to_client: u64,
}

/// A proxy on loopback before one server. It runs on threads of its own, so that it works
/// whatever the test's runtime does, and every method may be called at any time.
///
/// Faults add up until [`heal`](Self::heal). It is gone with its last handle.
#[derive(Clone, Debug)]
pub struct Proxy {
    handle: Arc<Handle>,
}

/// An answer that will be cut, or has been.
#[derive(Clone, Debug)]
pub struct Cut {
    order: Arc<CutOrder>,
}

/// What all parts of a proxy share.
pub(crate) struct Shared {
    pub(crate) target: SocketAddr,
    pub(crate) wire: Wire,
    pub(crate) faults: watch::Sender<Faults>,
    pub(crate) cuts: Mutex<Vec<Arc<CutOrder>>>,
    pub(crate) connections: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) bytes: [AtomicU64; 2],
    listening: AtomicBool,
}

/// What is broken at the moment. The arrays have one entry per [`Direction`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) delay: [Duration; 2],
    pub(crate) hold: [bool; 2],
    pub(crate) refuse: bool,
    /// Every connection that began at a lower number is reset.
    pub(crate) resets: u64,
    pub(crate) closed: bool,
}

/// One answer to cut.
#[derive(Debug)]
pub(crate) struct CutOrder {
    /// What the request must contain; empty: any.
    pub(crate) needle: Vec<u8>,
    pub(crate) done: watch::Sender<bool>,
}

impl Proxy {
    /// A proxy before `target`, of which only bytes are known.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(target: SocketAddr) -> Self {
        Self::speaking(Wire::Raw, target)
    }

    /// A proxy before `target` that can tell where an answer ends.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn speaking(wire: Wire, target: SocketAddr) -> Self {
        let (port, listener) = listen();
        let shared = Arc::new(Shared {
            target,
            wire,
            faults: watch::Sender::new(Faults::default()),
            cuts: Mutex::new(Vec::new()),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            bytes: [AtomicU64::new(0), AtomicU64::new(0)],
            listening: AtomicBool::new(true),
        });
        runtime().spawn(accept(shared.clone(), listener, port.address()));
        Self {
            handle: Arc::new(Handle { shared, port }),
        }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.handle.port.address()
    }

    /// Everything takes this much longer, each way.
    pub fn delay(&self, each_way: Duration) {
        self.change(|faults| faults.delay = [each_way; 2]);
    }

    /// One way takes this much longer.
    pub fn delay_one_way(&self, direction: Direction, delay: Duration) {
        self.change(|faults| faults.delay[direction.index()] = delay);
    }

    /// Nothing goes through, either way, and nobody is told: what is sent meanwhile
    /// arrives after [`heal`](Self::heal), as TCP's repeated packets would.
    pub fn black_hole(&self) {
        self.change(|faults| faults.hold = [true; 2]);
    }

    /// Nothing goes through this way; the other way is open.
    pub fn hold(&self, direction: Direction) {
        self.change(|faults| faults.hold[direction.index()] = true);
    }

    /// Every open connection is reset, on both sides, now. New ones are let in.
    ///
    /// # Panics
    /// If one stays open for long.
    pub fn reset(&self) {
        let number = self.handle.shared.connections.load(Ordering::SeqCst);
        let open = self.handle.shared.open.load(Ordering::SeqCst);
        self.change(|faults| faults.resets = number);
        if open > 0 {
            wait_until("connections are reset", SERVER_LIMIT, || {
                (self.traffic().open < open || self.traffic().connections > number).then_some(())
            });
        }
    }

    /// Every open connection is reset and new ones are refused, as if nobody listened.
    ///
    /// # Panics
    /// If the port stays open for long.
    pub fn refuse(&self) {
        self.change(|faults| faults.refuse = true);
        self.wait_listening(false);
        self.reset();
    }

    /// Ends all faults that last. What was held goes on. A [`Cut`] that waits for its
    /// request is called off.
    ///
    /// # Panics
    /// If the port cannot be had again.
    pub fn heal(&self) {
        let cuts = &self.handle.shared.cuts;
        cuts.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.change(|faults| {
            faults.delay = [Duration::ZERO; 2];
            faults.hold = [false; 2];
            faults.refuse = false;
        });
        self.wait_listening(true);
    }

    /// The next request, on whatever connection, goes through; once the server has
    /// answered it, the client's connection is reset and the answer is lost.
    ///
    /// The next request can be a greeting, a `PREPARE` or a heartbeat: mostly
    /// [`cut_answer_to`](Self::cut_answer_to) is what you want.
    pub fn cut_next_answer(&self) -> Cut {
        self.cut_answer_to("")
    }

    /// The same for the next request that contains these bytes: the lease's key or its
    /// holder, which all three protocols send as they are (without TLS).
    pub fn cut_answer_to(&self, needle: impl AsRef<[u8]>) -> Cut {
        let order = Arc::new(CutOrder {
            needle: needle.as_ref().to_vec(),
            done: watch::Sender::new(false),
        });
        let cuts = &self.handle.shared.cuts;
        let mut cuts = cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.push(order.clone());
        Cut { order }
    }

    /// What has gone through so far.
    pub fn traffic(&self) -> Traffic {
        let shared = &self.handle.shared;
        let [to_server, to_client] = &shared.bytes;
        Traffic {
            connections: shared.connections.load(Ordering::SeqCst),
            open: shared.open.load(Ordering::SeqCst),
            bytes_to_server: to_server.load(Ordering::SeqCst),
            bytes_to_client: to_client.load(Ordering::SeqCst),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.handle.shared.faults.send_modify(change);
    }

    fn wait_listening(&self, wanted: bool) {
        let listening = &self.handle.shared.listening;
        wait_until("the proxy's port", SERVER_LIMIT, || {
            (listening.load(Ordering::SeqCst) == wanted).then_some(())
        });
    }
}

impl Cut {
    /// Whether the answer has been cut.
    pub fn is_done(&self) -> bool {
        *self.order.done.borrow()
    }

    /// Waits until the answer has been cut.
    ///
    /// # Panics
    /// After a minute without such a request.
    pub async fn done(&self) {
        let mut done = self.order.done.subscribe();
        let waiting = async move {
            let cut = done.wait_for(|done| *done);
            tokio::time::timeout(SERVER_LIMIT, cut).await.is_ok()
        };
        // On the testbed's own runtime: the caller's may have no timers, or a paused clock.
        let outcome = runtime().spawn(waiting).await;
        let needle = String::from_utf8_lossy(&self.order.needle).into_owned();
        assert!(
            outcome.is_ok_and(|cut| cut),
            "no request with {needle:?} was answered within {SERVER_LIMIT:?}"
        );
    }
}

impl Direction {
    pub(crate) fn index(self) -> usize {
        match self {
            Self::ToServer => 0,
            Self::ToClient => 1,
        }
    }
}

/// What clients of the crate hold; the last one ends the proxy.
struct Handle {
    shared: Arc<Shared>,
    port: Port,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared
            .faults
            .send_modify(|faults| faults.closed = true);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.port.address();
        write!(f, "{from} to {}", self.shared.target)
    }
}

pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("testbed-proxy")
            .enable_all()
            .build();
        runtime.unwrap_or_else(|e| panic!("the proxy's runtime: {e}"))
    })
}

fn listen() -> (Port, std::net::TcpListener) {
    for _ in 0..100 {
        let port = Port::claim();
        if let Ok(listener) = bind(port.address()) {
            return (port, listener);
        }
    }
    panic!("no free port for a proxy");
}

fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(shared: Arc<Shared>, first: std::net::TcpListener, address: SocketAddr) {
    let mut faults = shared.faults.subscribe();
    let mut next = Some(first);
    loop {
        if faults.borrow_and_update().closed {
            return;
        }
        let bound = next.take().map_or_else(|| bind(address), Ok);
        let Ok(listener) = bound.and_then(TcpListener::from_std) else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        shared.listening.store(true, Ordering::SeqCst);
        loop {
            tokio::select! {
                biased;
                changed = faults.wait_for(|faults| faults.refuse || faults.closed) => {
                    if changed.is_err() {
                        return;
                    }
                    break;
                }
                accepted = listener.accept() => {
                    if let Ok((client, _)) = accepted {
                        connection::spawn(shared.clone(), client);
                    }
                }
            }
        }
        drop(listener);
        shared.listening.store(false, Ordering::SeqCst);
        let ended = faults
            .wait_for(|faults| !faults.refuse || faults.closed)
            .await;
        if ended.is_err() {
            return;
        }
    }
}
