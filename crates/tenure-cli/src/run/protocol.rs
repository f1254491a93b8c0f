//! What `tenure run` and its guardian say to each other: small frames of one size.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use tenure::{Moment, Token};

/// The bytes of a frame: what it is, and two numbers.
const FRAME_BYTES: usize = 24;

/// What the guardian is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start the command: this is the token, and the tenure ends then unless it is renewed.
    Go {
        /// The fencing token for the command.
        token: Token,
        /// When the tenure ends by itself.
        deadline: Moment,
    },
    /// The tenure was renewed: it now ends then.
    Deadline(Moment),
    /// End the command: TERM now, KILL at that moment at the latest.
    End {
        /// When to kill at the latest.
        kill_at: Moment,
    },
    /// Hand this signal on to the command's group.
    Forward(i32),
}

/// What the guardian tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It is there, and this is the process, and the group, that is to become the command.
    Ready(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command and all its descendants are dead.
    Done(Done),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its exit code, or 128 + n for a signal.
    pub code: u8,
    /// Who ended it, and whether it had begun.
    pub how: How,
}

/// Who ended the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It ended by itself, or by a signal that was not the guardian's.
    Own,
    /// The guardian ended it, because the tenure ended or the order came.
    Ended,
    /// It could not be executed.
    NotExecuted,
}

/// Frames that come in over a socket, put together again from what the kernel hands out.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

/// What one look into the socket gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame.
    Frame([u64; 3]),
    /// Nothing more for now.
    Nothing,
    /// The other side is gone.
    Closed,
}

impl Inbox {
    /// The next frame of a socket that does not block.
    pub fn next(&mut self, mut socket: &UnixStream) -> io::Result<Received> {
        loop {
            if let Some(frame) = self.take() {
                return Ok(Received::Frame(frame));
            }
            let mut bytes = [0; FRAME_BYTES * 16];
            match socket.read(&mut bytes) {
                Ok(0) => return Ok(Received::Closed),
                Ok(count) => self.bytes.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Received::Nothing);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The other side died with frames unread in its socket: gone all the same.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(Received::Closed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self) -> Option<[u64; 3]> {
        if self.bytes.len() < FRAME_BYTES {
            return None;
        }
        let rest = self.bytes.split_off(FRAME_BYTES);
        let frame = std::mem::replace(&mut self.bytes, rest);
        let mut numbers = [0; 3];
        for (number, bytes) in numbers.iter_mut().zip(frame.chunks_exact(8)) {
            // Chunks of eight are eight bytes long.
            *number = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        Some(numbers)
    }
}

/// Writes one frame. A socket that is full or closed is an error: nobody reads there.
pub fn send(mut socket: &UnixStream, frame: [u64; 3]) -> io::Result<()> {
    let mut bytes = [0; FRAME_BYTES];
    for (place, number) in bytes.chunks_exact_mut(8).zip(frame) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    socket.write_all(&bytes)
}

impl Order {
    /// The order as a frame.
    pub fn to_frame(self) -> [u64; 3] {
        match self {
            Order::Go { token, deadline } => [1, token.0, deadline.as_nanos()],
            Order::Deadline(deadline) => [2, deadline.as_nanos(), 0],
            Order::End { kill_at } => [3, kill_at.as_nanos(), 0],
            Order::Forward(signal) => [4, u64::from(signal.unsigned_abs()), 0],
        }
    }

    /// The order in a frame; None if it is none.
    pub fn from_frame(frame: [u64; 3]) -> Option<Self> {
        match frame {
            [1, token, deadline] => Some(Order::Go {
                token: Token(token),
                deadline: Moment::from_nanos(deadline),
            }),
            [2, deadline, _] => Some(Order::Deadline(Moment::from_nanos(deadline))),
            [3, kill_at, _] => Some(Order::End {
                kill_at: Moment::from_nanos(kill_at),
            }),
            [4, signal, _] => Some(Order::Forward(i32::try_from(signal).ok()?)),
            _ => None,
        }
    }
}

impl Report {
    /// The report as a frame.
    pub fn to_frame(self) -> [u64; 3] {
        match self {
            Report::Ready(pid) => [11, u64::from(pid.unsigned_abs()), 0],
            Report::Stopped(signal) => [12, u64::from(signal.unsigned_abs()), 0],
            Report::Done(Done { code, how }) => [13, u64::from(code), how as u64],
        }
    }

    /// The report in a frame; None if it is none.
    pub fn from_frame(frame: [u64; 3]) -> Option<Self> {
        match frame {
            [11, pid, _] => Some(Report::Ready(i32::try_from(pid).ok()?)),
            [12, signal, _] => Some(Report::Stopped(i32::try_from(signal).ok()?)),
            [13, code, how] => Some(Report::Done(Done {
                code: u8::try_from(code).ok()?,
                how: [How::Own, How::Ended, How::NotExecuted]
                    .into_iter()
                    .find(|known| *known as u64 == how)?,
            })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_through() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let orders = [
            Order::Go {
                token: Token(7),
                deadline: Moment::from_nanos(8),
            },
            Order::Deadline(Moment::from_nanos(u64::MAX)),
            Order::End {
                kill_at: Moment::from_nanos(3),
            },
            Order::Forward(15),
        ];
        for order in orders {
            send(&ours, order.to_frame()).unwrap();
        }
        drop(ours);
        let mut inbox = Inbox::default();
        for order in orders {
            let Received::Frame(frame) = inbox.next(&theirs).unwrap() else {
                panic!("no frame");
            };
            assert_eq!(Order::from_frame(frame), Some(order));
        }
        assert_eq!(inbox.next(&theirs).unwrap(), Received::Closed);
    }

    #[test]
    fn a_frame_may_come_in_pieces() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut inbox = Inbox::default();
        ours.write_all(&2_u64.to_ne_bytes()).unwrap();
        assert_eq!(inbox.next(&theirs).unwrap(), Received::Nothing);
        ours.write_all(&[0; 16]).unwrap();
        assert_eq!(inbox.next(&theirs).unwrap(), Received::Frame([2, 0, 0]));
    }

    #[test]
    fn reports_come_through() {
        for how in [How::Own, How::Ended, How::NotExecuted] {
            let report = Report::Done(Done { code: 143, how });
            assert_eq!(Report::from_frame(report.to_frame()), Some(report));
        }
        for report in [Report::Ready(12), Report::Stopped(20)] {
            assert_eq!(Report::from_frame(report.to_frame()), Some(report));
        }
    }
}
