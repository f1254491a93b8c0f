//! TLS as TDS 7 has it: the handshake travels within packets, what follows does not.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::tds::PRELOGIN;

/// The stream below TLS.
pub struct Below {
    stream: TcpStream,
    pub handshake: bool,
    header: Vec<u8>,
    left: usize,
    out: Vec<u8>,
}

impl Below {
    pub fn new(stream: TcpStream, handshake: bool) -> Self {
        Self {
            stream,
            handshake,
            header: Vec::new(),
            left: 0,
            out: Vec::new(),
        }
    }

    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.out);
            let written = ready!(written)?;
            self.out.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Below {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.handshake {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        while this.left == 0 {
            let mut byte = [0];
            let mut one = ReadBuf::new(&mut byte);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut one))?;
            if one.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.header.push(byte[0]);
            if this.header.len() == 8 {
                let length = u16::from_be_bytes([this.header[2], this.header[3]]);
                this.left = usize::from(length) - 8;
                this.header.clear();
            }
        }
        let mut part = buffer.take(this.left);
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.initialize_unfilled_to(read);
        buffer.advance(read);
        this.left -= read;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Below {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.handshake {
            ready!(this.poll_out(context))?;
            return Pin::new(&mut this.stream).poll_write(context, bytes);
        }
        for chunk in bytes.chunks(4088) {
            let length = u16::try_from(chunk.len() + 8).unwrap().to_be_bytes();
            this.out
                .extend([PRELOGIN, 1, length[0], length[1], 0, 0, 1, 0]);
            this.out.extend(chunk);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_out(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}
