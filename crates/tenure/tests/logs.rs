//! The structured logs: one line per change, with the fields that people search for.
//! One test, since the subscriber is one for the whole process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use support::{soon, until};
use tenure::{Elector, Holder, MemoryStore, Settings, Timing};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Buffer {
    fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.map(|line: Value| line["fields"].clone()).collect()
    }
}

#[tokio::test]
async fn each_change_is_one_line_with_its_fields() {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .init();

    let timing = Timing::with_ttl(Duration::from_millis(600));
    let holder = Holder::new("me").unwrap();
    let settings = Settings::new("k").unwrap().timing(timing).holder(holder);
    let elector = Elector::start(MemoryStore::new(), settings).unwrap();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    let line = |action: &str, outcome: Option<&str>| {
        let mut lines = buffer.lines().into_iter();
        lines.find(|line| {
            line["action"] == action && outcome.is_none_or(|outcome| line["outcome"] == outcome)
        })
    };
    until("a renewal is logged", || {
        line("renew", Some("renewed")).is_some()
    })
    .await;
    soon("the stop", elector.stop()).await;

    let call = line("acquire", Some("granted")).unwrap();
    assert_eq!((&call["key"], &call["holder"]), (&"k".into(), &"me".into()));
    assert!(call["seconds"].as_f64().unwrap() >= 0.0, "the latency");
    let elected = line("elected", None).unwrap();
    assert_eq!(elected["token"], tenure.token().0);
    assert_eq!(elected["holder"], "me");
    let lost = line("lost", None).unwrap();
    assert_eq!(lost["reason"], "stopped");
    assert_eq!(lost["token"], tenure.token().0);
}
