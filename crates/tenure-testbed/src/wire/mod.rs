//! As much of each protocol as is needed to tell which answer belongs to which request.

mod counted;
mod http2;

use counted::Counted;
use http2::Frames;

/// What is spoken through a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// Unknown, or hidden in TLS: the first bytes after a request are its answer.
    #[default]
    Raw,
    /// PostgreSQL: answers come in order, and each ends with "ready for query".
    Postgres,
    /// Redis: answers come in order; pushed messages are none.
    Redis,
    /// HTTP/2 (etcd): the answer is the first message on the stream of the request.
    Http2,
}

/// Finds requests in what the client sends.
#[derive(Debug)]
pub(crate) enum Requests {
    Raw(Vec<u8>),
    Counted(Counted),
    Http2(Frames),
}

/// Finds answers in what the server sends.
#[derive(Debug)]
pub(crate) enum Answers {
    Raw,
    Counted(Counted),
    Http2(Frames),
}

/// Which request: its number on the connection, or on HTTP/2 its stream.
pub(crate) type RequestId = u32;

/// What happens to a piece from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// So many of its bytes are handed on.
    pub(crate) forward: usize,
    /// Then the connection is cut.
    pub(crate) cut: bool,
}

/// The most that is kept to find words that come in two pieces.
const TAIL_BYTES: usize = 4096;

impl Requests {
    pub(crate) fn new(wire: Wire) -> Self {
        match wire {
            Wire::Raw => Self::Raw(Vec::new()),
            Wire::Postgres => Self::Counted(Counted::new(counted::postgres_client)),
            Wire::Redis => Self::Counted(Counted::new(counted::redis_client)),
            Wire::Http2 => Self::Http2(Frames::of_client()),
        }
    }

    /// Takes the next bytes and gives the first request in them that contains one of the
    /// needles (an empty one is in all), with the number of that needle.
    pub(crate) fn find(&mut self, bytes: &[u8], needles: &[&[u8]]) -> Option<(RequestId, usize)> {
        let which = |request: &[u8]| {
            let mut needles = needles.iter();
            needles.position(|needle| contains(request, needle))
        };
        match self {
            Self::Raw(tail) => {
                let known = tail.len();
                tail.extend_from_slice(bytes);
                // Only words of which some came just now: older ones have had their answer.
                let found = needles.iter().position(|needle| {
                    let overlap = needle.len().saturating_sub(1).min(known);
                    contains(&tail[known - overlap..], needle)
                });
                tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
                Some((0, found?))
            }
            Self::Counted(counted) => {
                let units = counted.take(bytes);
                let mut found = units.iter().filter_map(|unit| {
                    let needle = which(&unit.bytes)?;
                    Some((unit.number, needle))
                });
                found.next()
            }
            Self::Http2(frames) => {
                let frames = frames.take(bytes);
                let mut found = frames.iter().filter(|frame| frame.is_data());
                found.find_map(|frame| Some((frame.stream, which(&frame.payload)?)))
            }
        }
    }
}

impl Answers {
    pub(crate) fn new(wire: Wire) -> Self {
        match wire {
            Wire::Raw => Self::Raw,
            Wire::Postgres => Self::Counted(Counted::new(counted::postgres_server)),
            Wire::Redis => Self::Counted(Counted::new(counted::redis_server)),
            Wire::Http2 => Self::Http2(Frames::of_server()),
        }
    }

    /// Takes the next bytes, with the request whose answer is to be cut, if there is one.
    pub(crate) fn take(&mut self, bytes: &[u8], request: Option<RequestId>) -> Verdict {
        let all = Verdict {
            forward: bytes.len(),
            cut: false,
        };
        match self {
            Self::Raw => match request {
                None => all,
                Some(_) => Verdict {
                    forward: 0,
                    cut: true,
                },
            },
            Self::Counted(counted) => {
                let units = counted.take(bytes);
                let Some(request) = request else { return all };
                let earlier = units
                    .iter()
                    .filter(|unit| unit.counts && unit.number < request);
                let forward = match counted.count() >= request {
                    true => earlier.map(|unit| unit.end).next_back().unwrap_or(0),
                    false => bytes.len(),
                };
                Verdict {
                    forward,
                    cut: counted.count() > request,
                }
            }
            Self::Http2(frames) => {
                let frames = frames.take(bytes);
                let answered =
                    request.is_some_and(|stream| frames.iter().any(|frame| frame.answers(stream)));
                match answered {
                    false => all,
                    true => Verdict {
                        forward: 0,
                        cut: true,
                    },
                }
            }
        }
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || bytes.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::{Answers, Requests, Verdict, Wire};

    fn verdict(forward: usize, cut: bool) -> Verdict {
        Verdict { forward, cut }
    }

    #[test]
    fn a_needle_of_an_earlier_request_is_not_found_again() {
        for wire in [Wire::Raw, Wire::Redis] {
            let mut requests = Requests::new(wire);
            assert_eq!(requests.find(b"GET needle\r\n", &[]), None);
            assert_eq!(requests.find(b"PING\r\n", &[b"needle"]), None);
            assert!(requests.find(b"GET needle\r\n", &[b"needle"]).is_some());
        }
        let mut requests = Requests::new(Wire::Raw);
        assert_eq!(requests.find(b"nee", &[b"needle"]), None);
        assert_eq!(requests.find(b"dle", &[b"other", b"needle"]), Some((0, 1)));
    }

    #[test]
    fn redis_answers_are_counted_without_pushed_ones() {
        let mut requests = Requests::new(Wire::Redis);
        let sent = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
        assert_eq!(requests.find(sent, &[b"key"]), Some((1, 0)));
        let mut answers = Answers::new(Wire::Redis);
        let came = b">2\r\n+invalidate\r\n*0\r\n+PONG\r\n$3\r\nv";
        assert_eq!(answers.take(came, Some(1)), verdict(came.len() - 5, false));
        assert_eq!(answers.take(b"al\r\n", Some(1)), verdict(0, true));
    }

    #[test]
    fn a_redis_answer_in_pieces_is_one() {
        let mut answers = Answers::new(Wire::Redis);
        assert_eq!(answers.take(b"*2\r\n:1\r\n", None), verdict(8, false));
        assert_eq!(
            answers.take(b"%1\r\n+a\r\n_\r\n:1\r\n", Some(1)),
            verdict(11, true)
        );
    }

    #[test]
    fn postgres_answers_end_with_ready() {
        let mut requests = Requests::new(Wire::Postgres);
        let ssl = [0, 0, 0, 8, 4, 210, 22, 47];
        assert_eq!(requests.find(&ssl, &[]), None);
        assert_eq!(requests.find(b"\0\0\0\x0b\0\x03\0\0ab\0", &[]), None);
        let query = b"P\0\0\0\x05pS\0\0\0\x04B\0\0\0\x07keyS\0\0\0\x04";
        assert_eq!(requests.find(query, &[b"key"]), Some((2, 0)));
        let mut answers = Answers::new(Wire::Postgres);
        assert_eq!(answers.take(b"N", None), verdict(1, false));
        let hello = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
        assert_eq!(answers.take(hello, None), verdict(hello.len(), false));
        let came = b"1\0\0\0\x04Z\0\0\0\x05I2\0\0";
        assert_eq!(answers.take(came, Some(2)), verdict(11, false));
        assert_eq!(
            answers.take(b"\0\x04Z\0\0\0\x05I", Some(2)),
            verdict(0, true)
        );
    }

    #[test]
    fn http2_answers_are_those_of_the_stream() {
        let mut requests = Requests::new(Wire::Http2);
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        sent.extend_from_slice(b"\0\0\x03\0\0\0\0\0\x05key");
        assert_eq!(requests.find(&sent, &[b"key"]), Some((5, 0)));
        let mut answers = Answers::new(Wire::Http2);
        let other = b"\0\0\x01\0\0\0\0\0\x03x\0\0\x01\x01\x04\0\0\0\x05h";
        assert_eq!(answers.take(other, Some(5)), verdict(other.len(), false));
        assert_eq!(
            answers.take(b"\0\0\x01\0\0\0\0\0\x05x", Some(5)),
            verdict(0, true)
        );
    }
}
