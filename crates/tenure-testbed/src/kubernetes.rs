//! Kubernetes: a kube-apiserver over an etcd of its own, with tokens and RBAC.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::signal::Signal;

use crate::certs::Certs;
use crate::etcd::Etcd;
use crate::https::{Answer, Https};
use crate::ports::Port;
use crate::program;
use crate::run::{self, Place};
use crate::server::{Failure, Server, Spec, begin_on_free_port};
use crate::wire::Wire;

/// Pinned there, for Go and for us.
const GO_MOD: &str = include_str!("../kubernetes/go.mod");

const ADMIN: &str = "admin-token";

/// A private kube-apiserver over a private etcd. There is nothing else of Kubernetes: no
/// controllers, no nodes; a Pod is an object that stays as it is.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    server: Server,
    etcd: Etcd,
    certs: Certs,
    /// Its certificates, its keys, the file with the tokens.
    folder: PathBuf,
}

/// How a kube-apiserver is set up.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct KubernetesOptions {
    arguments: Vec<String>,
    users: Vec<String>,
}

impl KubernetesOptions {
    /// One server, with an administrator and nobody else.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more argument: `--watch-cache=false`.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// A user without any right, who logs in with the token `NAME-token`.
    pub fn user(mut self, name: &str) -> Self {
        self.users.push(name.to_owned());
        self
    }

    /// Starts etcd and the server, and waits until it is ready. `None` if this machine has
    /// no etcd or no kube-apiserver, which is then said (and is a failure with `CI=true`).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start(self) -> Option<Kubernetes> {
        let program = program()?;
        let etcd = Etcd::start()?;
        Some(begin_on_free_port(|| self.begin(&program, &etcd)))
    }

    fn begin(&self, program: &Path, etcd: &Etcd) -> Result<Kubernetes, Failure> {
        let folder = run::folder("kubernetes", Place::Disk);
        let certs = Certs::write(&folder.join("certs"), "client");
        let mut tokens = format!("{ADMIN},admin,admin,\"system:masters\"\n");
        for user in &self.users {
            tokens.push_str(&format!("{user}-token,{user},{user}\n"));
        }
        let file = folder.join("tokens.csv");
        fs::write(&file, tokens).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let port = Port::claim();
        let address = port.address();
        let key = certs.server_key().display().to_string();
        let mut args = vec![
            format!("--etcd-servers=http://{}", etcd.server().address()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", port.number()),
            format!("--tls-cert-file={}", certs.server_cert().display()),
            format!("--tls-private-key-file={key}"),
            format!("--token-auth-file={}", file.display()),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://tenure.test".to_owned(),
            format!(
                "--service-account-key-file={}",
                certs.server_cert().display()
            ),
            format!("--service-account-signing-key-file={key}"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            // Nobody is there to make service accounts for pods.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
        ];
        args.extend(self.arguments.iter().cloned());
        let https = Https::new(&certs.ca(), address, ADMIN);
        let server = Server::begin(Spec {
            name: "kube-apiserver",
            program: program.to_path_buf(),
            args: args.into_iter().map(OsString::from).collect(),
            user: None,
            clock: None,
            folder: folder.clone(),
            ports: vec![port],
            stop_signal: Signal::SIGTERM,
            wire: Wire::Raw,
            ready: Box::new(move || {
                let answer = https.try_ask("GET", "/readyz", None);
                answer.is_ok_and(|answer| answer.status == 200)
            }),
        })?;
        Ok(Kubernetes {
            server,
            etcd: etcd.clone(),
            certs,
            folder,
        })
    }
}

impl Kubernetes {
    /// One of the caller's own. `None` if this machine has none, which is then said.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start() -> Option<Self> {
        KubernetesOptions::new().start()
    }

    /// One for all tests of this process, private all the same: do not break it.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Kubernetes>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// The API server, to be paused, killed and started again.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The etcd behind it.
    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// Its certificates. The key of the server is also the one that signs the tokens of
    /// service accounts, for the issuer `https://tenure.test`.
    pub fn certs(&self) -> &Certs {
        &self.certs
    }

    /// The token of the administrator.
    pub fn admin_token(&self) -> &'static str {
        ADMIN
    }

    /// A kubeconfig file for whoever has this token, at this address: the server's, or that
    /// of a [`Proxy`](crate::Proxy).
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn kubeconfig(&self, address: SocketAddr, token: &str, namespace: &str) -> PathBuf {
        let user = format!("token: {token:?}");
        self.write_kubeconfig(address, &user, namespace)
    }

    /// The same, with the token in a file that may change.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn kubeconfig_by_file(
        &self,
        address: SocketAddr,
        token: &Path,
        namespace: &str,
    ) -> PathBuf {
        let user = format!("tokenFile: {:?}", token.display().to_string());
        self.write_kubeconfig(address, &user, namespace)
    }

    fn write_kubeconfig(&self, address: SocketAddr, user: &str, namespace: &str) -> PathBuf {
        let ca = self.certs.ca().display().to_string();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters:\n- name: test\n  cluster:\n    server: https://{address}\n    certificate-authority: {ca:?}\n\
             users:\n- name: test\n  user:\n    {user}\n\
             contexts:\n- name: test\n  context:\n    cluster: test\n    user: test\n    namespace: {namespace}\n"
        );
        let path = self.folder.join(crate::unique("kubeconfig"));
        fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// A request of the administrator, as `kubectl` sends it; the body is JSON.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn ask(&self, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
        let https = Https::new(&self.certs.ca(), self.server.address(), ADMIN);
        let answer = https.try_ask(method, path, body);
        let Answer { status, body } = answer.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
        (status, body)
    }

    /// The same with a body in YAML.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn ask_yaml(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let https = Https::new(&self.certs.ca(), self.server.address(), ADMIN);
        let answer = https.try_ask_in("application/yaml", method, path, Some(body));
        let Answer { status, body } = answer.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
        (status, body)
    }

    /// The same for one that must succeed.
    ///
    /// # Panics
    /// If it does not, with the server's words.
    pub fn must(&self, method: &str, path: &str, body: Option<&str>) -> String {
        let (status, text) = self.ask(method, path, body);
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {text}"
        );
        text
    }

    /// Creates a namespace.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn create_namespace(&self, name: &str) {
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        self.must("POST", "/api/v1/namespaces", Some(&body));
    }

    /// Gives a user of [`KubernetesOptions::user`] rights in a namespace: the verbs on the
    /// resources of a group.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn grant(&self, user: &str, namespace: &str, rules: &[(&str, &str, &[&str])]) {
        let rules: Vec<String> = rules
            .iter()
            .map(|(group, resource, verbs)| {
                let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
                let verbs = verbs.join(",");
                format!(
                    r#"{{"apiGroups":["{group}"],"resources":["{resource}"],"verbs":[{verbs}]}}"#
                )
            })
            .collect();
        let name = crate::unique("grant").replace('_', "-");
        let rules = rules.join(",");
        let at = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        let role = format!(r#"{{"metadata":{{"name":"{name}"}},"rules":[{rules}]}}"#);
        self.must("POST", &format!("{at}/roles"), Some(&role));
        let group = "rbac.authorization.k8s.io";
        let binding = format!(
            r#"{{"metadata":{{"name":"{name}"}},"roleRef":{{"apiGroup":"{group}","kind":"Role","name":"{name}"}},"subjects":[{{"apiGroup":"{group}","kind":"User","name":"{user}"}}]}}"#
        );
        self.must("POST", &format!("{at}/rolebindings"), Some(&binding));
    }
}

/// A program that `build-kubernetes` has built: `client-go-elect`. `None` if it is not
/// there, which is then said (and is a failure with `CI=true`).
pub fn built_for_kubernetes(name: &str) -> Option<PathBuf> {
    let found = program::built(name);
    if found.is_none() {
        program::not_built(name, "crates/tenure-testbed/build-kubernetes");
    }
    found
}

fn program() -> Option<PathBuf> {
    let version = GO_MOD.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("k8s.io/kubernetes ")?;
        rest.split_whitespace().next()
    });
    built_for_kubernetes(&format!("kube-apiserver-{}", version.unwrap_or_default()))
}
