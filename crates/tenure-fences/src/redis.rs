//! Redis: one script that checks the token, remembers it and runs the caller's command.
//!
//! A script is one step in Redis: nothing comes between the check and the write. In a
//! cluster the fence's key and the data have to be in one hash slot: give them the same
//! tag, `{orders}:fence` and `{orders}:today`.
//!
//! The fence is as durable as the data beside it: what a server that forgets on restart
//! (or a replica that takes over too early) has lost of one, it has lost of both. Its key
//! has no expiry; a `maxmemory-policy` of `allkeys-…` could still throw it away.

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Script, Value};
use tenure::{Tenure, Token};

use crate::error::{FenceError, Result};
use crate::token::{check, read_token, sendable};

/// The script, for other languages too. `KEYS[1]` is the fence's key, the other keys are
/// those that the command touches; `ARGV[1]` is the token, the rest is the command. Without
/// a command it only raises the fence.
///
/// It answers `{1, answer of the command}`, or `{0, the token that was seen}`.
pub const SCRIPT: &str = r"local function older(a, b)
  return #a < #b or (#a == #b and a < b)
end
local function is_token(text)
  return string.match(text, '^[1-9]%d*$') and not older('9007199254740991', text)
end
local token, seen = ARGV[1], redis.call('GET', KEYS[1])
if not token or not is_token(token) then
  return redis.error_reply('NOTOKEN ' .. (token or 'nothing') .. ' is no token')
end
if seen and not is_token(seen) then
  return redis.error_reply('BADFENCE ' .. seen .. ' is no token')
end
if seen and older(token, seen) then
  return {0, seen}
end
if seen ~= token then
  redis.call('SET', KEYS[1], token)
end
if #ARGV == 1 then
  return {1, false}
end
return {1, redis.call(unpack(ARGV, 2))}";

/// The fence of one resource, at one key of Redis.
///
/// ```no_run
/// # async fn write(mut connection: redis::aio::MultiplexedConnection, tenure: &tenure::Tenure) -> tenure_fences::Result<()> {
/// use tenure_fences::redis::RedisFence;
///
/// let fence = RedisFence::new("{orders}:fence")?;
/// let mut command = redis::cmd("INCRBY");
/// command.arg("{orders}:today").arg(7);
/// let today: i64 = fence
///     .write(&mut connection, tenure, &["{orders}:today"], &command)
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisFence {
    key: String,
    script: Script,
}

impl RedisFence {
    /// The fence that is kept at this key.
    pub fn new(key: impl Into<String>) -> Result<Self> {
        Ok(Self {
            key: crate::names::resource(key)?,
            script: Script::new(SCRIPT),
        })
    }

    /// Runs one command, unless a greater token has been here. `keys` are those that the
    /// command touches, which a cluster has to know.
    ///
    /// A command that Redis refuses has written nothing, but the fence stays raised.
    pub async fn write<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        tenure: &Tenure,
        keys: &[&str],
        command: &Cmd,
    ) -> Result<T> {
        let token = sendable(tenure)?;
        let mut call = self.script.key(&self.key);
        for key in keys {
            call.key(*key);
        }
        call.arg(token.0);
        let mut words = 0;
        for word in command.args_iter() {
            words += 1;
            match word {
                redis::Arg::Simple(bytes) => call.arg(bytes),
                _ => {
                    return Err(FenceError::Invalid(
                        "a fenced command is complete: it has no cursor left open".to_owned(),
                    ));
                }
            };
        }
        if words == 0 {
            return Err(FenceError::Invalid(
                "the command is empty: to raise the fence alone there is raise".to_owned(),
            ));
        }
        let answer = call.invoke_async(connection).await;
        let value = self.passed(token, answer)?;
        redis::from_redis_value(value).map_err(FenceError::resource)
    }

    /// Raises the fence and nothing else: the first act of a new leader.
    pub async fn raise(&self, connection: &mut impl ConnectionLike, tenure: &Tenure) -> Result<()> {
        let token = sendable(tenure)?;
        let mut call = self.script.key(&self.key);
        let answer = call.arg(token.0).invoke_async(connection).await;
        self.passed(token, answer).map(drop)
    }

    /// The greatest token that has been here.
    pub async fn seen(&self, connection: &mut impl ConnectionLike) -> Result<Token> {
        let mut get = redis::cmd("GET");
        let kept: Option<String> = get.arg(&self.key).query_async(connection).await?;
        match kept {
            Some(text) => read_token(&text).map_err(|_| FenceError::unreadable(&self.key, &text)),
            None => Err(FenceError::NeverFenced {
                resource: self.key.clone(),
            }),
        }
    }

    fn passed(&self, token: Token, answer: redis::RedisResult<(i64, Value)>) -> Result<Value> {
        match answer {
            Ok((1, value)) => Ok(value),
            Ok((_, seen)) => {
                let seen: String = redis::from_redis_value(seen).map_err(FenceError::resource)?;
                let seen = read_token(&seen);
                let seen = seen.map_err(|_| FenceError::unreadable(&self.key, "something else"))?;
                check(token, seen)?;
                let resource = self.key.clone();
                Err(FenceError::Busy { resource })
            }
            Err(error) if error.code() == Some("BADFENCE") => {
                let found = error.detail().unwrap_or_default();
                let found = found.strip_suffix(" is no token").unwrap_or(found);
                Err(FenceError::unreadable(&self.key, found))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl From<redis::RedisError> for FenceError {
    fn from(error: redis::RedisError) -> Self {
        FenceError::resource(error)
    }
}
