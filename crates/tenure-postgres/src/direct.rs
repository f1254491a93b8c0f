//! Whether a connection leads straight to the server: then statements may be prepared.
//!
//! A prepared statement lives in one session of the server. A pooler in transaction mode
//! gives a client now this session and now that one, where the name means nothing, or
//! what another client prepared under it. So we prepare only where it is proven that
//! nobody is in between: a server tells each client the process that serves it, and a
//! pooler, which has to pass on requests to cancel itself, tells a number of its own.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Asks the process that serves us for its number, and compares.
pub(crate) async fn is_direct(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let rows = client.query_typed("SELECT pg_backend_pid()", &[]).await?;
    let serving = rows
        .first()
        .map(|row| row.try_get::<_, i32>(0))
        .transpose()?;
    Ok(serving.is_some() && told(client).await == serving)
}

/// The number that was told at login. The driver keeps it to itself, but puts it into a
/// request to cancel: that is written to nowhere, and read from there.
async fn told(client: &Client) -> Option<i32> {
    let (near, mut far) = duplex(64);
    // Yes, TLS is spoken here: the answer in case it asks.
    far.write_all(b"S").await.ok()?;
    client
        .cancel_token()
        .cancel_query_raw(near, Nowhere)
        .await
        .ok()?;
    let mut written = Vec::new();
    far.read_to_end(&mut written).await.ok()?;
    // Its length, its kind, the process and a secret, of four bytes each.
    let request: &[u8; 16] = written.last_chunk()?;
    let (kind, process) = (&request[4..8], &request[8..12]);
    let is_cancel = *kind == 80_877_102_i32.to_be_bytes();
    is_cancel.then(|| process.try_into().ok().map(i32::from_be_bytes))?
}

/// Does nothing to what is written.
struct Nowhere;

struct Through(DuplexStream);

impl TlsConnect<DuplexStream> for Nowhere {
    type Stream = Through;
    type Error = Infallible;
    type Future = Ready<Result<Through, Infallible>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Through(stream)))
    }
}

impl TlsStream for Through {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Through {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Through {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
