//! What others in the cluster are told of who leads: a label on our own pod, and Events.
//!
//! For people and Services to go by, never for a decision. It happens beside the calls, so
//! that none waits for it, and a right that is missing costs no lease.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use serde_json::{Value, json};
use tenure::{Acquired, BootClock, Clock, Error, Key, Lease, Result, Token};

use crate::failure::Right;
use crate::link::{Link, escaped};
use crate::names;
use crate::options::Announce;

/// Tells the cluster what this store's answers say.
#[derive(Debug)]
pub(crate) struct Announcer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    label: Option<(String, String)>,
    pod: String,
    events: bool,
    /// What is held through this store.
    held: Mutex<HashMap<Key, Token>>,
    /// Whether the label is on the pod, as far as it is known. Locked while it is changed.
    labelled: tokio::sync::Mutex<Option<bool>>,
}

impl Announcer {
    /// None if nothing is to be told.
    pub(crate) fn new(link: &Arc<Link>, announce: Announce) -> Result<Option<Self>> {
        let Announce {
            pod_label: label,
            pod,
            events,
        } = announce;
        if label.is_none() && !events {
            return Ok(None);
        }
        let pod = pod.or_else(pod_name).unwrap_or_default();
        if label.is_some() && !names::is_name(&pod) {
            return Err(Error::misconfigured(
                "the name of our own pod is not known, so it cannot get a label: set POD_NAME from metadata.name in the pod's env, or name it with pod=",
            ));
        }
        let inner = Inner {
            link: link.clone(),
            label,
            pod,
            events,
            held: Mutex::default(),
            labelled: tokio::sync::Mutex::new(None),
        };
        Ok(Some(Self {
            inner: Arc::new(inner),
        }))
    }

    /// After the answer to an acquire.
    pub(crate) fn acquired(&self, key: &Key, answer: &Acquired) {
        match answer {
            Acquired::Granted(lease) => {
                let before = self.held().insert(key.clone(), lease.token);
                if before != Some(lease.token) {
                    self.event(lease, "became leader");
                }
            }
            Acquired::Held(_) => {
                self.held().remove(key);
            }
        }
        self.label();
    }

    /// After a renewal, which may be the chance to mend what did not work before.
    pub(crate) fn renewed(&self) {
        self.label();
    }

    /// After a lease was lost or released.
    pub(crate) fn lost(&self, lease: &Lease) {
        let ours = self.held().get(&lease.key) == Some(&lease.token);
        if ours {
            self.held().remove(&lease.key);
            self.event(lease, "stopped leading");
        }
        self.label();
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Token>> {
        self.inner.held()
    }

    fn label(&self) {
        let inner = &self.inner;
        if inner.label.is_none() {
            return;
        }
        let is_right = inner.labelled.try_lock();
        if is_right.is_ok_and(|labelled| *labelled == Some(inner.leads())) {
            return;
        }
        let inner = inner.clone();
        tokio::spawn(async move { inner.put_label().await });
    }

    fn event(&self, lease: &Lease, what: &str) {
        if !self.inner.events {
            return;
        }
        let text = format!("{} {what}, with token {}", lease.holder, lease.token);
        let (inner, key) = (self.inner.clone(), lease.key.clone());
        tokio::spawn(async move {
            if let Err(error) = inner.post_event(&key, &text).await {
                tracing::warn!(key = %key, "no Event was written: {error}");
            }
        });
    }
}

impl Inner {
    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Token>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leads(&self) -> bool {
        !self.held().is_empty()
    }

    async fn put_label(&self) {
        let mut labelled = self.labelled.lock().await;
        let leads = self.leads();
        let Some((name, value)) = self.label.as_ref().filter(|_| *labelled != Some(leads)) else {
            return;
        };
        let value = if leads { json!(value) } else { Value::Null };
        let patch = json!({ "metadata": { "labels": { name: value } } });
        match self.patch_pod(&patch).await {
            Ok(()) => *labelled = Some(leads),
            Err(error) => {
                tracing::warn!(pod = self.pod, "the pod's label was not changed: {error}");
            }
        }
    }

    async fn patch_pod(&self, patch: &Value) -> Result<()> {
        let namespace = match std::env::var("POD_NAMESPACE") {
            Ok(namespace) if !namespace.is_empty() => namespace,
            _ => self.link.home().await?,
        };
        let (namespace, pod) = (escaped(&namespace), escaped(&self.pod));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
        let right = Right {
            verb: "patch",
            resource: "pods",
        };
        let content = "application/merge-patch+json";
        let sent = self.link.other(Method::PATCH, path, patch, content, right);
        sent.await
    }

    async fn post_event(&self, key: &Key, text: &str) -> Result<()> {
        let (namespace, _) = self.link.place().await?;
        let name = names::name(key);
        let now = humantime::format_rfc3339_seconds(BootClock.wall()).to_string();
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "generateName": format!("{name}."), "namespace": namespace },
            "involvedObject": {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "name": name,
                "namespace": namespace,
            },
            "reason": "LeaderElection",
            "message": text,
            "type": "Normal",
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": { "component": "tenure", "host": self.pod },
        });
        let path = format!("/api/v1/namespaces/{}/events", escaped(&namespace));
        let right = Right {
            verb: "create",
            resource: "events",
        };
        let content = "application/json";
        let sent = self.link.other(Method::POST, path, &event, content, right);
        sent.await
    }
}

/// As the downward API gives it; else a pod's host name is its own.
fn pod_name() -> Option<String> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    set("KUBERNETES_SERVICE_HOST")?;
    set("POD_NAME").or_else(|| set("HOSTNAME"))
}
