//! How a store is opened: from a URL, or part by part.

use std::path::PathBuf;
use std::time::Duration;

use tenure::{Error, Result};
use tenure_net::StoreUrl;

use crate::connect::Source;
use crate::names;

/// Longer than any answer takes that is still of use to an election.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Which cluster, who we are there, and in which namespace the Leases lie.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `KubernetesStore::open`"]
pub struct KubernetesOptions {
    pub(crate) source: Source,
    pub(crate) namespace: Option<String>,
    pub(crate) request_timeout: Duration,
    pub(crate) announce: Announce,
}

/// What others in the cluster are told of who leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announce {
    pub(crate) pod_label: Option<(String, String)>,
    pub(crate) pod: Option<String>,
    pub(crate) events: bool,
}

impl Default for KubernetesOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl KubernetesOptions {
    /// The current context of the kubeconfig (`KUBECONFIG`, or `~/.kube/config`), or the
    /// pod's own service account if there is none; the namespace that goes with it.
    pub fn new() -> Self {
        Self {
            source: Source::default(),
            namespace: None,
            request_timeout: REQUEST_TIMEOUT,
            announce: Announce::default(),
        }
    }

    /// `kubernetes://namespace?context=…`, or `k8s://`.
    ///
    /// The other options are `kubeconfig`, `in-cluster`, `request-timeout`, `pod-label`,
    /// `pod` and `events`.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        if !matches!(url.scheme(), "kubernetes" | "k8s") {
            return Err(Error::invalid(
                "a Kubernetes store's URL begins with kubernetes:// or k8s://",
            ));
        }
        if url.user().is_some() {
            return Err(Error::invalid(
                "the kubernetes: URL has a user in it: who we are stands in the kubeconfig or the pod's service account",
            ));
        }
        let mut options = Self::new();
        match url.hosts() {
            [] => {}
            [namespace] if namespace.port.is_none() => {
                options = options.namespace(namespace.name.clone())?;
            }
            _ => {
                return Err(Error::invalid(
                    "the kubernetes: URL names a server: write the namespace there, kubernetes://NAMESPACE, and the server in the kubeconfig",
                ));
            }
        }
        if !url.path().is_empty() {
            return Err(Error::invalid(
                "the kubernetes: URL has something behind its namespace: write kubernetes://NAMESPACE",
            ));
        }
        if let Some(path) = url.take("kubeconfig") {
            options = options.kubeconfig(path);
        }
        if let Some(context) = url.take("context") {
            options = options.context(context);
        }
        options.source.in_cluster = url.take_switch("in-cluster")?.unwrap_or(false);
        if let Some(timeout) = url.take_duration("request-timeout")? {
            options = options.request_timeout(timeout);
        }
        if let Some(label) = url.take("pod-label") {
            let (name, value) = label.split_once('=').ok_or_else(|| {
                Error::invalid("the option pod-label of the kubernetes: URL has to be NAME%3DVALUE")
            })?;
            options = options.pod_label(name, value)?;
        }
        if let Some(pod) = url.take("pod") {
            options = options.pod(pod);
        }
        options.announce.events = url.take_switch("events")?.unwrap_or(false);
        url.finish()?;
        let Source {
            kubeconfig,
            context,
            in_cluster,
        } = &options.source;
        if *in_cluster && (kubeconfig.is_some() || context.is_some()) {
            return Err(Error::invalid(
                "the kubernetes: URL has in-cluster=on and a kubeconfig or context: leave one of them out",
            ));
        }
        Ok(options)
    }

    /// In this namespace, and not in that of the context or the pod.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Result<Self> {
        let namespace = namespace.into();
        let fits = names::is_name(&namespace) && !namespace.contains('.') && namespace.len() <= 63;
        if !fits {
            // It may stand in a URL, so it is not repeated.
            return Err(Error::invalid(
                "no namespace can have this name: Kubernetes allows small letters, digits and - inside, 63 at most",
            ));
        }
        self.namespace = Some(namespace);
        Ok(self)
    }

    /// By this file, and not by `KUBECONFIG` or the pod's own account.
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.source.kubeconfig = Some(path.into());
        self
    }

    /// By this context of the kubeconfig, and not by its current one.
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.source.context = Some(context.into());
        self
    }

    /// By the pod's own service account, even if there is a kubeconfig.
    pub fn in_cluster(mut self) -> Self {
        self.source.in_cluster = true;
        self
    }

    /// How long one request may take. Default 10 s; an elector gives up sooner by its own
    /// call timeout.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Puts this label on our own pod while a lease of this store is held, so that a Service
    /// can select the leader. It is for convenience and late by nature: it stays on a pod
    /// that has crashed or is cut off. Needs the right to patch pods.
    pub fn pod_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Result<Self> {
        let (name, value) = (name.into(), value.into());
        if !is_label(&name, &value) {
            return Err(Error::invalid(
                "no pod can have this label: Kubernetes allows letters, digits and - _ . inside, 63 at most, and a domain and / before the name",
            ));
        }
        self.announce.pod_label = Some((name, value));
        Ok(self)
    }

    /// The name of our own pod, if neither POD_NAME nor the host's name is it.
    pub fn pod(mut self, name: impl Into<String>) -> Self {
        self.announce.pod = Some(name.into());
        self
    }

    /// Writes an Event about the Lease when this process begins or ends to lead. Needs the
    /// right to create events.
    pub fn events(mut self, events: bool) -> Self {
        self.announce.events = events;
        self
    }

    /// The Role that gives just the rights that are needed, for `kubectl apply -f -`.
    pub fn schema(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or("default");
        let mut rules = String::from(
            "  - apiGroups: [coordination.k8s.io]\n    resources: [leases]\n    verbs: [get, create, update, watch]\n\
             \x20 # Only for `tenure list`:\n\
             \x20 # - apiGroups: [coordination.k8s.io]\n  #   resources: [leases]\n  #   verbs: [list]\n",
        );
        if self.announce.pod_label.is_some() {
            rules.push_str("  - apiGroups: [\"\"]\n    resources: [pods]\n    verbs: [patch]\n");
        }
        if self.announce.events {
            rules.push_str("  - apiGroups: [\"\"]\n    resources: [events]\n    verbs: [create]\n");
        }
        format!(
            "# Kubernetes has the Lease already. An administrator gives the rights to the service\n\
             # account that is named at the end: kubectl apply -f -\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: tenure\n  namespace: {namespace}\nrules:\n{rules}\
             ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata:\n  name: tenure\n  namespace: {namespace}\n\
             roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: Role\n  name: tenure\n\
             subjects:\n  - kind: ServiceAccount\n    name: tenure # serviceAccountName of your pods\n    namespace: {namespace}\n"
        )
    }
}

fn is_label(name: &str, value: &str) -> bool {
    let part = |text: &str| {
        let bytes = text.as_bytes();
        let ends = bytes.first().zip(bytes.last());
        let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        ends.is_some_and(|(a, b)| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric())
            && bytes.iter().all(inside)
            && bytes.len() <= 63
    };
    let name = match name.split_once('/') {
        Some((domain, name)) if names::is_name(domain) => name,
        Some(_) => return false,
        None => name,
    };
    part(name) && (value.is_empty() || part(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::ErrorKind;

    #[test]
    fn a_url_says_it_all() {
        let url = "kubernetes://jobs?kubeconfig=%2Ftmp%2Fc&context=prod&request-timeout=3s&pod-label=role%3Dleader&pod=p-0&events=on";
        let options = KubernetesOptions::from_url(url).unwrap();
        assert_eq!(options.namespace.as_deref(), Some("jobs"));
        assert_eq!(options.source.kubeconfig, Some("/tmp/c".into()));
        assert_eq!(options.source.context.as_deref(), Some("prod"));
        assert_eq!(options.request_timeout, Duration::from_secs(3));
        let label = ("role".to_owned(), "leader".to_owned());
        assert_eq!(options.announce.pod_label, Some(label));
        assert!(options.announce.events);
        let schema = options.schema();
        for part in [
            "namespace: jobs",
            "resources: [pods]",
            "resources: [events]",
        ] {
            assert!(schema.contains(part), "{schema}");
        }
        let least = KubernetesOptions::from_url("k8s://").unwrap();
        assert_eq!(least.namespace, None);
        assert!(!least.schema().contains("[pods]"));
        assert!(
            least
                .schema()
                .contains("verbs: [get, create, update, watch]")
        );
    }

    #[test]
    fn a_url_that_says_too_much_is_refused() {
        for url in [
            "etcd://a",
            "k8s://a,b",
            "k8s://host:6443",
            "k8s://me@a",
            "k8s://a/b",
            "k8s://Upper",
            "k8s://a.b",
            "k8s://a_b",
            "k8s://a?namespace=b",
            "k8s://a?events=perhaps",
            "k8s://a?pod-label=leader",
            "k8s://a?pod-label=-x%3Dy",
            "k8s://a?in-cluster=on&context=b",
            "k8s://a?request-timeout=soon",
        ] {
            let error = KubernetesOptions::from_url(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn labels_are_checked() {
        assert!(is_label("tenure.example.com/leader", "true"));
        assert!(is_label("role", ""));
        for (name, value) in [
            ("", "x"),
            ("a/b/c", "x"),
            ("A_b", "-"),
            ("a b", "x"),
            ("/a", "x"),
        ] {
            assert!(!is_label(name, value), "{name} {value}");
        }
    }
}
