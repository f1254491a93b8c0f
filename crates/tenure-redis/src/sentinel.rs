//! Sentinel: who the primary is, asked whenever a connection is made.

use redis::Value;
use tenure::{Error, Result};

use crate::connect::{Connector, Line, Server};
use crate::failure::{self, Place};
use crate::said::{said, text};

/// Several Sentinels and the name of what they watch.
#[derive(Clone, Debug)]
pub(crate) struct Sentinels {
    pub servers: Vec<Server>,
    pub name: String,
    /// How to connect to a Sentinel, which has a log-in of its own.
    pub connector: Connector,
}

impl Sentinels {
    /// A connection to the primary of the moment.
    pub(crate) async fn line(&self, connector: &Connector) -> Result<Line> {
        let server = self.primary().await?;
        let line = connector.line(&server).await?;
        // Sentinel may speak of the old one for a moment. Whoever may not ask for the
        // role learns it from the first write, which a replica refuses.
        let role = redis::cmd("ROLE");
        let role = tokio::time::timeout(connector.timeout, line.send(&role)).await;
        if let Ok(Ok(Value::Array(role))) = role
            && role
                .first()
                .and_then(text)
                .is_some_and(|role| role != "master")
        {
            return Err(Error::unreachable(format!(
                "Redis at {server} is not the primary of \"{}\" any more, or not yet: try again",
                self.name
            )));
        }
        Ok(line)
    }

    /// Where the primary is, by the first Sentinel that knows.
    pub(crate) async fn primary(&self) -> Result<Server> {
        let mut failed = None;
        for sentinel in &self.servers {
            match self.ask(sentinel).await {
                Ok(primary) => return Ok(primary),
                // One that does not know the name says more than one that is down.
                Err(error) if failed.is_none() || !may_retry(&error) => failed = Some(error),
                Err(_) => {}
            }
        }
        Err(failed.unwrap_or_else(|| Error::invalid("no Sentinel is named")))
    }

    async fn ask(&self, sentinel: &Server) -> Result<Server> {
        let line = self.connector.line(sentinel).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let name = sentinel.to_string();
        let place = Place {
            server: &name,
            moves: true,
        };
        let asked = tokio::time::timeout(self.connector.timeout, line.send(&command)).await;
        let answer = match asked {
            Ok(Ok(answer)) => said(answer),
            Ok(Err(_)) | Err(_) => {
                return Err(Error::unreachable(format!(
                    "the Sentinel at {name} does not answer: try again"
                )));
            }
        };
        match answer {
            Ok(Value::Array(parts)) => {
                let host = parts.first().and_then(text);
                let port = parts
                    .get(1)
                    .and_then(text)
                    .and_then(|port| port.parse().ok());
                let (Some(host), Some(port)) = (host, port) else {
                    return Err(failure::no_sense(&name));
                };
                Ok(Server { host, port })
            }
            Ok(Value::Nil) => Err(Error::misconfigured(format!(
                "the Sentinel at {name} watches nothing of the name \"{}\": name it as in its `sentinel monitor` line",
                self.name
            ))),
            Ok(_) => Err(failure::no_sense(&name)),
            Err(refusal) if refusal.detail.contains("unknown command") => {
                Err(Error::misconfigured(format!(
                    "Redis at {name} is no Sentinel: name the Sentinels' own ports (26379), or use redis://"
                )))
            }
            // Only asked, so nothing has happened.
            Err(refusal) => Err(failure::of_greeting(place, &refusal.code, &refusal.detail)),
        }
    }
}

fn may_retry(error: &Error) -> bool {
    error.kind() == tenure::ErrorKind::Unavailable
}
