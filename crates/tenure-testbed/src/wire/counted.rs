//! Protocols whose answers come in the order of their requests: both are counted.

/// One message, command or reply.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) bytes: Vec<u8>,
    /// How many that count came before it.
    pub(crate) number: u32,
    /// Whether it asks for an answer, or ends one.
    pub(crate) counts: bool,
    /// Where in the piece that was taken it ends.
    pub(crate) end: usize,
}

/// Cuts bytes into units and counts those that count.
#[derive(Debug)]
pub(crate) struct Counted {
    next: Next,
    /// Whether the greeting is over.
    greeted: bool,
    rest: Vec<u8>,
    count: u32,
}

/// The length of the first unit in the bytes and whether it counts, once it is whole.
type Next = fn(&[u8], greeted: &mut bool) -> Option<(usize, bool)>;

impl Counted {
    pub(crate) fn new(next: Next) -> Self {
        Self {
            next,
            greeted: false,
            rest: Vec::new(),
            count: 0,
        }
    }

    /// How many units have counted so far.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The units that are whole now.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Unit> {
        let known = self.rest.len();
        self.rest.extend_from_slice(bytes);
        let mut units = Vec::new();
        let mut at = 0;
        while let Some((length, counts)) = (self.next)(&self.rest[at..], &mut self.greeted) {
            let Some(whole) = self.rest.get(at..at + length) else {
                break;
            };
            at += length;
            units.push(Unit {
                bytes: whole.to_vec(),
                number: self.count,
                counts,
                end: at.saturating_sub(known),
            });
            self.count += u32::from(counts);
        }
        self.rest.drain(..at);
        units
    }
}

const POSTGRES_SSL: u32 = 80_877_103;
const POSTGRES_GSS: u32 = 80_877_104;
const POSTGRES_CANCEL: u32 = 80_877_102;

/// Messages of a client: the greeting, "query", "sync" and "function call" each get one
/// "ready for query".
pub(crate) fn postgres_client(bytes: &[u8], greeted: &mut bool) -> Option<(usize, bool)> {
    if *greeted {
        let length = number(bytes, 1)?;
        return Some((1 + length as usize, matches!(bytes[0], b'Q' | b'S' | b'F')));
    }
    let (length, code) = (number(bytes, 0)? as usize, number(bytes, 4)?);
    if bytes.len() < length {
        return None;
    }
    *greeted = code != POSTGRES_SSL && code != POSTGRES_GSS;
    Some((length.max(1), *greeted && code != POSTGRES_CANCEL))
}

/// Messages of a server: "ready for query" ends an answer.
pub(crate) fn postgres_server(bytes: &[u8], greeted: &mut bool) -> Option<(usize, bool)> {
    let kind = *bytes.first()?;
    if !*greeted && matches!(kind, b'N' | b'S' | b'G') {
        // The answer to "do you speak TLS" is one letter.
        return Some((1, false));
    }
    *greeted = true;
    Some((1 + number(bytes, 1)? as usize, kind == b'Z'))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Commands: arrays, or lines as a person types them.
pub(crate) fn redis_client(bytes: &[u8], _greeted: &mut bool) -> Option<(usize, bool)> {
    let length = match *bytes.first()? {
        b'*' => value(bytes)?,
        _ => line(bytes)?,
    };
    Some((length, true))
}

/// Replies; what Redis pushes, or says about a reply, is none.
pub(crate) fn redis_server(bytes: &[u8], _greeted: &mut bool) -> Option<(usize, bool)> {
    let kind = *bytes.first()?;
    Some((value(bytes)?, !matches!(kind, b'>' | b'|')))
}

/// The length of a value with all that is in it, once it is whole.
fn value(bytes: &[u8]) -> Option<usize> {
    let head = line(bytes)?;
    let text = bytes.get(1..head - 2).unwrap_or_default();
    let text = std::str::from_utf8(text).unwrap_or_default();
    // A length of -1 stands for nothing at all.
    let size = text.parse::<usize>().ok();
    let parts = match bytes[0] {
        b'$' | b'=' | b'!' => {
            let end = size.map_or(head, |size| head + size + 2);
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'~' | b'>' => size.unwrap_or(0),
        b'%' | b'|' => size.unwrap_or(0) * 2,
        _ => 0,
    };
    let mut end = head;
    for _ in 0..parts {
        end += value(bytes.get(end..)?)?;
    }
    Some(end)
}

/// The length of the first line with its end.
fn line(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some(end + 2)
}
