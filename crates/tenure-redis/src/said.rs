//! What a server says to a command: a value, or a refusal with its code.

use redis::{RedisError, ServerError, Value};

/// An error that a server answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: String,
    pub detail: String,
}

pub(crate) type Said = Result<Value, Refusal>;

/// Where a cluster says that a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// For this call only; the slot is still moving.
    pub once: bool,
    /// Empty for the host that said so.
    pub host: String,
    pub port: u16,
}

impl Refusal {
    fn new(error: &ServerError) -> Self {
        Self {
            code: error.code().to_owned(),
            detail: error.details().unwrap_or_default().to_owned(),
        }
    }

    /// What the server of a driver said, if it is that and not the driver's own failure.
    pub(crate) fn of(error: &RedisError) -> Option<Self> {
        Some(Self {
            code: error.code()?.to_owned(),
            detail: error.detail().unwrap_or_default().to_owned(),
        })
    }

    /// The server does not know the script, so it did not run.
    pub(crate) fn is_unknown_script(&self) -> bool {
        self.code == "NOSCRIPT"
    }

    /// The key is on another server, so nothing ran here.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        let once = match self.code.as_str() {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let (_slot, address) = self.detail.split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        Some(Redirect {
            once,
            host: if host == "?" { "" } else { host }.to_owned(),
            port: port.parse().ok()?,
        })
    }
}

pub(crate) fn said(value: Value) -> Said {
    match value {
        Value::ServerError(error) => Err(Refusal::new(&error)),
        value => Ok(value),
    }
}

/// A text in an answer.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Okay => Some("OK".to_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_understood() {
        let refusal = |code: &str, detail: &str| Refusal {
            code: code.into(),
            detail: detail.into(),
        };
        let redirect = |once, host: &str, port| {
            let host = host.into();
            Some(Redirect { once, host, port })
        };
        let moved = refusal("MOVED", "3999 127.0.0.1:6381").redirect();
        assert_eq!(moved, redirect(false, "127.0.0.1", 6381));
        assert_eq!(
            refusal("ASK", "1 ::1:6381").redirect(),
            redirect(true, "::1", 6381)
        );
        assert_eq!(
            refusal("MOVED", "1 :6381").redirect(),
            redirect(false, "", 6381)
        );
        assert_eq!(refusal("MOVED", "1").redirect(), None);
        assert_eq!(refusal("ERR", "3999 127.0.0.1:6381").redirect(), None);
    }
}
