//! The line to the guardian and the signals, for an async loop.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, ready};

use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::protocol::{self, Inbox, Order, Received, Report};
use super::signals::{Caught, Signals};

/// The line to the guardian.
#[derive(Debug)]
pub struct Line {
    socket: AsyncFd<UnixStream>,
    inbox: Inbox,
    child: Option<Pid>,
}

impl Line {
    /// Listens on this socket, which does not block.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        Ok(Self {
            socket: listen(socket)?,
            inbox: Inbox::default(),
            child: None,
        })
    }

    /// The process, and the group, that is to become the command, once it is there.
    pub fn child(&self) -> Option<Pid> {
        self.child
    }

    /// Sends an order. A guardian that is gone is noticed by [`next`](Self::next).
    pub fn send(&self, order: Order) {
        if let Err(error) = protocol::send(self.socket.get_ref(), order.to_frame()) {
            tracing::debug!("the guardian does not listen: {error}");
        }
    }

    /// The next report; None when the guardian is gone. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<Report> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Report>> {
        loop {
            match self.inbox.next(self.socket.get_ref()) {
                Ok(Received::Frame(frame)) => {
                    if let Some(report) = Report::from_frame(frame) {
                        if let Report::Ready(pid) = report {
                            self.child = Some(Pid::from_raw(pid));
                        }
                        return Poll::Ready(Some(report));
                    }
                }
                Ok(Received::Closed) | Err(_) => return Poll::Ready(None),
                Ok(Received::Nothing) => match ready!(self.socket.poll_read_ready(context)) {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return Poll::Ready(None),
                },
            }
        }
    }
}

/// Values that own their one descriptor.
trait OwnsDescriptor: AsRawFd {}
impl OwnsDescriptor for UnixStream {}
impl OwnsDescriptor for Signals {}

fn listen<T: OwnsDescriptor>(inner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: each of the two types above owns its descriptor, closes it only when it is
    // dropped and never changes it, so it stays open and the same while it is listened to.
    #[expect(unsafe_code, reason = "the value owns the descriptor")]
    let listening = unsafe { AsyncFd::register_with_interest(inner, Interest::READABLE) };
    listening.map_err(Into::into)
}

/// The signals, for an async loop.
#[derive(Debug)]
pub struct SignalLine {
    signals: AsyncFd<Signals>,
}

impl SignalLine {
    /// Listens to these signals.
    pub fn new(signals: Signals) -> io::Result<Self> {
        Ok(Self {
            signals: listen(signals)?,
        })
    }

    /// The next signal. Safe to drop and call again.
    pub async fn next(&mut self) -> Caught {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Caught> {
        loop {
            if let Some(caught) = self.signals.get_ref().next() {
                return Poll::Ready(caught);
            }
            match ready!(self.signals.poll_read_ready(context)) {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is going away, and we with it.
                Err(_) => return Poll::Pending,
            }
        }
    }
}
