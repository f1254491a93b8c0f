//! The few lines of Redis's protocol that commands by hand need.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What Redis answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No such thing.
    Nil,
    /// A number.
    Int(i64),
    /// A status or a string.
    Text(String),
    /// A refusal, in Redis's words.
    Error(String),
    /// Several.
    List(Vec<Reply>),
}

impl Reply {
    /// The text or number as text, if it is one.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Int(number) => Some(number.to_string()),
            Self::Nil | Self::Error(_) | Self::List(_) => None,
        }
    }
}

/// One connection over the server's own socket.
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    pub(crate) fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            write!(request, "${}\r\n{word}\r\n", word.len())?;
        }
        self.stream.get_mut().write_all(&request)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end();
        let Some(kind) = line.get(..1) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let rest = &line[1..];
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Int(number()?)),
            "$" => match usize::try_from(number()?) {
                Ok(length) => self.bulk(length),
                Err(_) => Ok(Reply::Nil),
            },
            "*" => match usize::try_from(number()?) {
                Ok(count) => Ok(Reply::List(
                    (0..count)
                        .map(|_| self.reply())
                        .collect::<io::Result<_>>()?,
                )),
                Err(_) => Ok(Reply::Nil),
            },
            _ => Err(io::Error::other(format!("not Redis's protocol: {line}"))),
        }
    }

    fn bulk(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
    }
}
