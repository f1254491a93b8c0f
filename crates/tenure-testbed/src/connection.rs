//! One connection through the proxy: two pumps, and the faults that end or delay them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::proxy::{CutOrder, Direction, Faults, Shared};
use crate::wire::{Answers, RequestId, Requests, Verdict};

/// Pieces that wait for their delay or for a held way to open again.
const QUEUE: usize = 1024;
const PIECE_BYTES: usize = 64 * 1024;

/// Bytes with the moment they came, or the end of what is sent this way.
enum Piece {
    Bytes(Instant, Vec<u8>),
    End,
}

/// The answer that this connection is to lose.
type Pending = Mutex<Option<(RequestId, Arc<CutOrder>)>>;

/// Why a connection is over, unless both sides have closed it.
enum Ending {
    Reset,
    Cut,
}

pub(crate) fn spawn(shared: Arc<Shared>, client: TcpStream) {
    let number = shared.connections.fetch_add(1, Ordering::SeqCst);
    shared.open.fetch_add(1, Ordering::SeqCst);
    tokio::spawn(async move {
        run(&shared, client, number).await;
        shared.open.fetch_sub(1, Ordering::SeqCst);
    });
}

async fn run(shared: &Shared, mut client: TcpStream, number: u64) {
    let mut faults = shared.faults.subscribe();
    let mut held = shared.faults.subscribe();
    let connect = async {
        // A server that no packet reaches does not accept a connection either.
        let _ = held.wait_for(|faults| !faults.hold[0]).await;
        TcpStream::connect(shared.target).await
    };
    let connected = tokio::select! {
        connected = connect => connected,
        () = ended(&mut faults, number) => Err(io::ErrorKind::ConnectionReset.into()),
    };
    let Ok(mut server) = connected else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let ending = {
        let pending = Pending::default();
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::try_join!(
                pump(
                    shared,
                    Direction::ToServer,
                    from_client,
                    to_server,
                    &pending
                ),
                pump(
                    shared,
                    Direction::ToClient,
                    from_server,
                    to_client,
                    &pending
                ),
            )
        };
        tokio::select! {
            outcome = both => outcome.err(),
            () = ended(&mut faults, number) => Some(Ending::Reset),
        }
    };
    match ending {
        None => {}
        Some(Ending::Cut) => {
            let _ = client.set_zero_linger();
        }
        Some(Ending::Reset) => {
            let _ = client.set_zero_linger();
            let _ = server.set_zero_linger();
        }
    }
}

async fn ended(faults: &mut watch::Receiver<Faults>, number: u64) {
    let gone = |faults: &Faults| faults.closed || faults.resets > number;
    // The sender lives as long as the connection: it ends only by what it says.
    let _ = faults.wait_for(gone).await;
}

async fn pump(
    shared: &Shared,
    direction: Direction,
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    pending: &Pending,
) -> Result<(), Ending> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::try_join!(
        read(from, sender),
        write(shared, direction, to, receiver, pending),
    )?;
    Ok(())
}

async fn read(mut from: ReadHalf<'_>, queue: mpsc::Sender<Piece>) -> Result<(), Ending> {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let Ok(length) = from.read(&mut buffer).await else {
            return Err(Ending::Reset);
        };
        let piece = match length {
            0 => Piece::End,
            _ => Piece::Bytes(now(), buffer[..length].to_vec()),
        };
        if queue.send(piece).await.is_err() || length == 0 {
            return Ok(());
        }
    }
}

async fn write(
    shared: &Shared,
    direction: Direction,
    mut to: WriteHalf<'_>,
    mut queue: mpsc::Receiver<Piece>,
    pending: &Pending,
) -> Result<(), Ending> {
    let mut faults = shared.faults.subscribe();
    let mut requests = Requests::new(shared.wire);
    let mut answers = Answers::new(shared.wire);
    let way = direction.index();
    while let Some(piece) = queue.recv().await {
        let Piece::Bytes(came, bytes) = piece else {
            let _ = faults.wait_for(|faults| !faults.hold[way]).await;
            let _ = to.shutdown().await;
            return Ok(());
        };
        let delay = faults.borrow().delay[way];
        tokio::time::sleep_until(came + delay).await;
        let _ = faults.wait_for(|faults| !faults.hold[way]).await;
        let all = Verdict {
            forward: bytes.len(),
            cut: false,
        };
        let verdict = match direction {
            Direction::ToServer => {
                order(shared, &mut requests, &bytes, pending);
                all
            }
            Direction::ToClient => {
                let waiting = lock(pending).as_ref().map(|(request, _)| *request);
                answers.take(&bytes, waiting)
            }
        };
        let forward = &bytes[..verdict.forward];
        let length = u64::try_from(forward.len()).unwrap_or(0);
        shared.bytes[way].fetch_add(length, Ordering::SeqCst);
        if to.write_all(forward).await.is_err() {
            return Err(Ending::Reset);
        }
        if verdict.cut {
            if let Some((_, order)) = lock(pending).take() {
                order.done.send_replace(true);
            }
            return Err(Ending::Cut);
        }
    }
    Ok(())
}

/// Whether the answer to what the client just sent is to be cut.
fn order(shared: &Shared, requests: &mut Requests, bytes: &[u8], pending: &Pending) {
    let mut cuts = lock(&shared.cuts);
    let needles: Vec<&[u8]> = cuts.iter().map(|cut| cut.needle.as_slice()).collect();
    let Some((request, position)) = requests.find(bytes, &needles) else {
        return;
    };
    let mut pending = lock(pending);
    if pending.is_none() {
        *pending = Some((request, cuts.remove(position)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the proxy delays real bytes in real time"
)]
fn now() -> Instant {
    Instant::now()
}
