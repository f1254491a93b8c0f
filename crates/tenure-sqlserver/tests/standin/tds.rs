//! TDS 7.4 as far as a client of ours speaks it: packets, logins, requests, answers.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::database::{Fault, Value};
use super::run::Answer;

pub const BATCH: u8 = 1;
pub const RPC: u8 = 3;
pub const ANSWER: u8 = 4;
pub const LOGIN: u8 = 16;
pub const PRELOGIN: u8 = 18;

/// A whole message of the client, of however many packets: its kind and its content.
pub async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let mut content = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let begin = content.len();
        content.resize(begin + length.saturating_sub(8), 0);
        stream.read_exact(&mut content[begin..]).await?;
        if header[1] & 1 == 1 {
            return Ok((header[0], content));
        }
    }
}

/// A whole message of the server, in packets of the usual size.
pub async fn send(stream: &mut (impl AsyncWrite + Unpin), content: &[u8]) -> io::Result<()> {
    let mut chunks = content.chunks(4088).peekable();
    let mut packet = 0_u8;
    while let Some(chunk) = chunks.next() {
        packet = packet.wrapping_add(1);
        let length = u16::try_from(chunk.len() + 8).unwrap().to_be_bytes();
        let last = u8::from(chunks.peek().is_none());
        let header = [ANSWER, last, length[0], length[1], 0, 51, packet, 0];
        stream.write_all(&header).await?;
        stream.write_all(chunk).await?;
    }
    stream.flush().await
}

/// What the server says of itself and of encryption.
pub fn prelogin(encryption: u8) -> Vec<u8> {
    let fields: [(u8, &[u8]); 4] = [
        (0, &[16, 0, 0, 0, 0, 0]),
        (1, &[encryption]),
        (2, &[0]),
        (4, &[0]),
    ];
    let mut offset = u16::try_from(fields.len() * 5 + 1).unwrap();
    let (mut head, mut data) = (Vec::new(), Vec::<u8>::new());
    for (kind, content) in fields {
        let length = u16::try_from(content.len()).unwrap();
        head.push(kind);
        head.extend(offset.to_be_bytes());
        head.extend(length.to_be_bytes());
        data.extend(content);
        offset += length;
    }
    head.push(0xff);
    head.extend(data);
    head
}

/// User, password and database of a login.
pub fn login(content: &[u8]) -> (String, String, String) {
    let number = |at: usize| usize::from(u16::from_le_bytes([content[at], content[at + 1]]));
    let bytes = |at: usize| content[number(at)..number(at) + number(at + 2) * 2].to_vec();
    let hidden = bytes(44)
        .iter()
        .map(|byte| (byte ^ 0xa5).rotate_left(4))
        .collect::<Vec<_>>();
    (text(&bytes(40)), text(&hidden), text(&bytes(68)))
}

/// The batch and the parameters of a call of sp_executesql.
pub fn call(content: &[u8]) -> (String, Vec<Value>) {
    let mut rest = Reader(content);
    rest.skip_headers();
    assert_eq!(
        rest.take(4),
        [0xff, 0xff, 10, 0],
        "sp_executesql by its number"
    );
    rest.take(2);
    let mut values = Vec::new();
    while !rest.0.is_empty() {
        let name = usize::from(rest.take(1)[0]);
        rest.take(name * 2 + 1);
        values.push(rest.value());
    }
    let mut values = values.into_iter();
    let Some(Value::Text(batch)) = values.next() else {
        panic!("a call without a batch");
    };
    (batch, values.skip(1).collect())
}

/// The text of a batch without parameters.
pub fn batch(content: &[u8]) -> String {
    let mut rest = Reader(content);
    rest.skip_headers();
    text(rest.0)
}

fn text(bytes: &[u8]) -> String {
    let units = bytes
        .chunks_exact(2)
        .map(|two| u16::from_le_bytes([two[0], two[1]]));
    String::from_utf16(&units.collect::<Vec<_>>()).unwrap()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn number(&mut self, count: usize) -> u64 {
        let bytes = self.take(count).iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn skip_headers(&mut self) {
        let length = usize::try_from(self.number(4)).unwrap();
        self.take(length - 4);
    }

    fn value(&mut self) -> Value {
        match self.take(1)[0] {
            0x38 => Value::Number(i64::from(self.number(4) as i32)),
            0x7f => Value::Number(self.number(8) as i64),
            0x26 => {
                self.take(1);
                match usize::from(self.take(1)[0]) {
                    0 => Value::Null,
                    4 => Value::Number(i64::from(self.number(4) as i32)),
                    length => Value::Number(self.number(length) as i64),
                }
            }
            0xe7 => {
                let size = self.number(2);
                self.take(5);
                if size == 0xffff {
                    self.number(8);
                    let mut bytes = Vec::new();
                    loop {
                        match usize::try_from(self.number(4)).unwrap() {
                            0 => return Value::Text(text(&bytes)),
                            length => bytes.extend(self.take(length)),
                        }
                    }
                }
                match usize::try_from(self.number(2)).unwrap() {
                    0xffff => Value::Null,
                    length => Value::Text(text(self.take(length))),
                }
            }
            kind => panic!("a parameter of kind {kind:#x}"),
        }
    }
}

fn units(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn short(text: &str) -> Vec<u8> {
    let mut all = vec![u8::try_from(text.encode_utf16().count()).unwrap()];
    all.extend(units(text));
    all
}

fn token(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut all = vec![kind];
    all.extend(u16::try_from(content.len()).unwrap().to_le_bytes());
    all.extend(content);
    all
}

/// Kind 0xfd ends a batch, 0xfe a call.
fn done(kind: u8, status: u16) -> Vec<u8> {
    let mut all = vec![kind];
    all.extend(status.to_le_bytes());
    all.extend([0; 10]);
    all
}

/// The login was accepted.
pub fn welcome() -> Vec<u8> {
    let mut content = vec![1, 0x74, 0, 0, 4];
    content.extend(short("stand-in"));
    content.extend([16, 0, 0, 0]);
    let mut all = token(0xad, &content);
    all.extend(done(0xfd, 0));
    all
}

pub fn fault(fault: &Fault) -> Vec<u8> {
    let mut content = fault.number.to_le_bytes().to_vec();
    content.extend([1, fault.class]);
    let length = u16::try_from(fault.text.encode_utf16().count()).unwrap();
    content.extend(length.to_le_bytes());
    content.extend(units(&fault.text));
    content.extend(short("stand-in"));
    content.extend(short(""));
    content.extend(1_u32.to_le_bytes());
    let mut all = token(0xaa, &content);
    all.extend(done(0xfd, 2));
    all
}

/// All numbers are bigint, all texts nvarchar(4000), all times datetime2(7): but the type
/// of a column has to be the same in each row, so it is told by its name.
pub fn answer(answer: &Answer) -> Vec<u8> {
    let mut all = Vec::new();
    if !answer.names.is_empty() {
        all.push(0x81);
        all.extend(u16::try_from(answer.names.len()).unwrap().to_le_bytes());
        for name in &answer.names {
            all.extend([0; 4]);
            all.extend([9, 0]);
            match kind(name) {
                Kind::Number => all.extend([0x26, 8]),
                Kind::Text => all.extend([0xe7, 0x40, 0x1f, 9, 4, 0xd0, 0, 0x34]),
                Kind::Time => all.extend([0x2a, 7]),
            }
            all.extend(short(name));
        }
    }
    for row in &answer.rows {
        all.push(0xd1);
        for (name, value) in answer.names.iter().zip(row) {
            cell(&mut all, kind(name), value);
        }
    }
    all.extend(done(0xfd, 0x10));
    all
}

enum Kind {
    Number,
    Text,
    Time,
}

fn kind(name: &str) -> Kind {
    match name {
        "Until" | "Since" | "Now" => Kind::Time,
        "LeaseKey" | "OwnerId" | "Request" | "Name" | "Kind" | "Collation" => Kind::Text,
        _ => Kind::Number,
    }
}

fn cell(all: &mut Vec<u8>, kind: Kind, value: &Value) {
    match (kind, value) {
        (Kind::Text, Value::Null) => all.extend([0xff, 0xff]),
        (_, Value::Null) => all.push(0),
        (Kind::Number, Value::Number(number)) => {
            all.push(8);
            all.extend(number.to_le_bytes());
        }
        (Kind::Text, Value::Text(text)) => {
            let bytes = units(text);
            all.extend(u16::try_from(bytes.len()).unwrap().to_le_bytes());
            all.extend(bytes);
        }
        (Kind::Time, Value::Time(ticks)) => {
            let day = 864_000_000_000;
            all.push(8);
            all.extend(&ticks.rem_euclid(day).to_le_bytes()[..5]);
            all.extend(&(ticks.div_euclid(day) + 719_162).to_le_bytes()[..3]);
        }
        (_, value) => panic!("{value:?} in a column of another kind"),
    }
}
