//! The frames of HTTP/2.

const CLIENT_PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

#[derive(Debug)]
pub(crate) struct Frame {
    kind: u8,
    flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn is_data(&self) -> bool {
        self.kind == DATA
    }

    /// A message on the stream, or its end without one.
    pub(crate) fn answers(&self, stream: u32) -> bool {
        let last = self.kind == HEADERS && self.flags & END_STREAM != 0;
        self.stream == stream && (self.is_data() || last)
    }
}

/// Cuts bytes into frames.
#[derive(Debug)]
pub(crate) struct Frames {
    skip: usize,
    rest: Vec<u8>,
}

impl Frames {
    pub(crate) fn of_client() -> Self {
        Self {
            skip: CLIENT_PREFACE_BYTES,
            rest: Vec::new(),
        }
    }

    pub(crate) fn of_server() -> Self {
        Self {
            skip: 0,
            rest: Vec::new(),
        }
    }

    /// The frames that are whole now.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        self.rest.extend_from_slice(&bytes[skipped..]);
        let mut frames = Vec::new();
        while let [a, b, c, kind, flags, s0, s1, s2, s3, ..] = self.rest[..] {
            let end = HEADER_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
            if self.rest.len() < end {
                break;
            }
            let payload = self.rest[HEADER_BYTES..end].to_vec();
            self.rest.drain(..end);
            frames.push(Frame {
                kind,
                flags,
                stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
                payload,
            });
        }
        frames
    }
}
