//! What is missing is said, with the command that makes it: rights, namespace, credentials.

use std::time::Duration;

use tenure::{ErrorKind, Store};
use tenure_kubernetes::{KubernetesOptions, KubernetesStore};
use tenure_testbed::{Certs, KubernetesOptions as Server};

use crate::support::{Place, aside, key, request, take};

const LEASES: &str = "coordination.k8s.io";

/// One server with users for all that is tried here.
#[tokio::test]
async fn each_missing_right_is_named_and_the_least_rights_are_enough() {
    let users = ["nobody", "reader", "least", "creator"];
    let server = users.iter().fold(Server::new(), |s, user| s.user(user));
    let Some(kubernetes) = aside(move || server.start()).await else {
        return;
    };
    let place = Place::on(kubernetes).await;
    let grant = |user: &'static str, verbs: &'static [&'static str]| {
        let (kubernetes, namespace) = (place.kubernetes.clone(), place.namespace.clone());
        aside(move || kubernetes.grant(user, &namespace, &[(LEASES, "leases", verbs)]))
    };
    grant("reader", &["get"]).await;
    grant("creator", &["get", "create"]).await;
    grant("least", &["get", "create", "update", "watch"]).await;
    let store = |user: &str| {
        let options = place.options_at(place.address(), &format!("{user}-token"));
        KubernetesStore::open(options).unwrap()
    };
    for (user, verb) in [
        ("nobody", "get"),
        ("reader", "create"),
        ("creator", "update"),
    ] {
        let asked = store(user).acquire(&request("rights", "me", 10)).await;
        let error = asked.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(!error.may_have_worked());
        let text = error.to_string();
        assert!(
            text.contains(&format!("the right to {verb} leases")),
            "{text}"
        );
        assert!(text.contains("tenure schema"), "{text}");
        assert!(!text.contains("-token"), "{text}");
    }
    let least = store("least");
    let lease = take(&least, "least", "me").await;
    least.renew(&lease, Duration::from_secs(5)).await.unwrap();
    drop(least.watch(&lease.key).await.unwrap());
    least.release(&lease).await.unwrap();
    least.init().await.unwrap();
    let list = least.list("", 1).await.unwrap_err();
    assert!(
        list.to_string().contains("the right to list leases"),
        "{list}"
    );
    let watch = store("reader").watch(&key("least")).await.err().unwrap();
    assert!(
        watch.to_string().contains("the right to watch leases"),
        "{watch}"
    );
}

#[tokio::test]
async fn a_missing_namespace_is_named_with_the_command_that_makes_it() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let options = place.options().namespace("not-there").unwrap();
    let store = KubernetesStore::open(options).unwrap();
    assert_eq!(store.read(&key("a")).await.unwrap(), None);
    let error = store.acquire(&request("a", "me", 10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    let text = error.to_string();
    assert!(
        text.contains("kubectl create namespace not-there"),
        "{text}"
    );
}

#[tokio::test]
async fn a_token_that_nobody_knows_is_refused() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let options = place.options_at(place.address(), "hunter2");
    let store = KubernetesStore::open(options).unwrap();
    let error = store.acquire(&request("a", "me", 10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    let text = format!("{error} {error:?} {store:?}");
    assert!(text.contains("does not accept who we are"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let other = Certs::write(folder.path(), "x");
    let kubeconfig = std::fs::read_to_string(place.kubeconfig(place.address(), "x")).unwrap();
    let ca = place.kubernetes.certs().ca().display().to_string();
    let kubeconfig = kubeconfig.replace(&ca, &other.ca().display().to_string());
    let file = folder.path().join("config");
    std::fs::write(&file, kubeconfig).unwrap();
    let store = KubernetesStore::open(KubernetesOptions::new().kubeconfig(file)).unwrap();
    let error = store.read(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(
        error.to_string().contains("certificate-authority"),
        "{error}"
    );
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_named() {
    let options = KubernetesOptions::new().kubeconfig("/not/there");
    let store = KubernetesStore::open(options).unwrap();
    let error = store.read(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("kubeconfig="), "{error}");
    let context = KubernetesOptions::new().in_cluster();
    let store = KubernetesStore::open(context).unwrap();
    let error = store.read(&key("a")).await.unwrap_err();
    assert!(error.to_string().contains("inside a pod"), "{error}");
}

/// The rights that an administrator is given to paste are those that are enough.
#[tokio::test]
async fn the_role_that_is_printed_is_accepted() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let schema = place.options().namespace(place.namespace.clone()).unwrap();
    let schema = schema
        .pod_label("role", "leader")
        .unwrap()
        .events(true)
        .schema();
    let at = "/apis/rbac.authorization.k8s.io/v1/namespaces";
    for (part, resource) in schema.split("---\n").zip(["roles", "rolebindings"]) {
        let path = format!("{at}/{}/{resource}", place.namespace);
        let (kubernetes, body) = (place.kubernetes.clone(), part.to_owned());
        // The server reads YAML too, if it is told so.
        let answer = aside(move || kubernetes.ask_yaml("POST", &path, &body)).await;
        assert_eq!(answer.0, 201, "{}", answer.1);
    }
}

/// Each file of deploy/kubernetes is something that a real API server takes.
#[tokio::test]
async fn the_manifests_are_accepted() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut accepted = 0;
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "yaml")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for part in text.split("---\n") {
            let field = |name: &str| {
                let value = part.lines().find_map(|line| line.strip_prefix(name));
                value.unwrap().trim().to_owned()
            };
            let (version, kind) = (field("apiVersion:"), field("kind:"));
            let at = if version == "v1" { "/api" } else { "/apis" };
            let (namespace, kind) = (&place.namespace, kind.to_lowercase());
            let path =
                format!("{at}/{version}/namespaces/{namespace}/{kind}s?fieldValidation=Strict");
            let (kubernetes, body) = (place.kubernetes.clone(), part.to_owned());
            let answer = aside(move || kubernetes.ask_yaml("POST", &path, &body)).await;
            assert_eq!(answer.0, 201, "{}: {}", file.display(), answer.1);
            accepted += 1;
        }
    }
    assert_eq!(accepted, 7);
}
