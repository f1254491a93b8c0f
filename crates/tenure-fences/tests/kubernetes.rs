//! Kubernetes, on a real API server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use support::{Leader, two_leaders};
use support::{assert_busy, assert_ended, assert_never_fenced, assert_stale, assert_unreadable};
use tenure::{Tenure, Token};
use tenure_fences::FenceError;
use tenure_fences::kubernetes::{ANNOTATION, KubernetesFence};
use tenure_testbed::{Kubernetes, unique};

async fn api(server: &Kubernetes) -> Api<ConfigMap> {
    let address = server.server().address();
    let path = server.kubeconfig(address, server.admin_token(), "default");
    let file = Kubeconfig::read_from(path).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(file, &options).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    Api::namespaced(client, "default")
}

/// A map that nobody has fenced yet.
async fn map(api: &Api<ConfigMap>) -> String {
    let name = unique("map").replace('_', "-");
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.clone());
    api.create(&Default::default(), &map).await.unwrap();
    name
}

fn by(text: &str) -> impl Fn(&mut ConfigMap) {
    let text = text.to_owned();
    move |map| {
        let data = map.data.get_or_insert_default();
        data.insert("by".to_owned(), text.clone());
    }
}

async fn read(api: &Api<ConfigMap>, name: &str) -> Option<String> {
    api.get(name).await.unwrap().data?.remove("by")
}

#[tokio::test]
async fn an_old_leader_is_turned_away() {
    let Some(server) = Kubernetes::shared() else {
        return;
    };
    let api = api(server).await;
    let (old, new) = two_leaders().await;
    let name = map(&api).await;
    let fence = KubernetesFence::new(api.clone());
    assert_never_fenced(fence.seen(&name).await);
    let kept = fence.update(&old.tenure, &name, by("old")).await.unwrap();
    // The first act of the new leader is enough: no real work has come yet.
    fence.raise(&new.tenure, &name).await.unwrap();
    // The old one goes on where it was: it read before, checked, and now writes.
    assert_stale(fence.replace(&old.tenure, kept).await, 7, 9);
    assert_stale(fence.update(&old.tenure, &name, by("late")).await, 7, 9);
    assert_stale(fence.raise(&old.tenure, &name).await, 7, 9);
    assert_eq!(read(&api, &name).await.as_deref(), Some("old"));
    let mut kept = fence.update(&new.tenure, &name, by("new")).await.unwrap();
    by("newer")(&mut kept);
    fence.replace(&new.tenure, kept).await.unwrap();
    assert_eq!(read(&api, &name).await.as_deref(), Some("newer"));
    assert_eq!(fence.seen(&name).await.unwrap(), Token(9));
}

#[tokio::test]
async fn a_write_compares_and_says_who_was_first() {
    let Some(server) = Kubernetes::shared() else {
        return;
    };
    let api = api(server).await;
    let new = Leader::with_token(9).await;
    let fence = KubernetesFence::new(api.clone());
    let name = unique("map").replace('_', "-");
    let mut fresh = ConfigMap::default();
    fresh.metadata.name = Some(name.clone());
    // Without a version nothing can be compared, so it is not sent.
    let refused = fence.replace(&new.tenure, fresh.clone()).await;
    assert!(
        matches!(refused, Err(FenceError::Invalid(_))),
        "{refused:?}"
    );
    let first = fence.create(&new.tenure, fresh).await.unwrap();
    assert_eq!(fence.seen(&name).await.unwrap(), Token(9));
    fence.update(&new.tenure, &name, by("new")).await.unwrap();
    assert_busy(fence.replace(&new.tenure, first).await);
}

/// Two writers of one tenure at once: each change is there in the end.
#[tokio::test]
async fn an_update_is_repeated_when_another_write_came_between() {
    let Some(server) = Kubernetes::shared() else {
        return;
    };
    let api = api(server).await;
    let new = Leader::with_token(9).await;
    let name = map(&api).await;
    let fence = KubernetesFence::new(api.clone());
    let add = async |key: &str, tenure: &Tenure| {
        for number in 0..3 {
            let change = |map: &mut ConfigMap| {
                let data = map.data.get_or_insert_default();
                data.insert(format!("{key}{number}"), String::new());
            };
            fence.update(tenure, &name, change).await.unwrap();
        }
    };
    tokio::join!(add("a", &new.tenure), add("b", &new.tenure));
    assert_eq!(api.get(&name).await.unwrap().data.unwrap().len(), 6);
}

#[tokio::test]
async fn a_tenure_that_has_ended_and_a_fence_that_cannot_be_read() {
    let Some(server) = Kubernetes::shared() else {
        return;
    };
    let api = api(server).await;
    let (old, new) = two_leaders().await;
    let name = map(&api).await;
    let fence = KubernetesFence::new(api.clone());
    let mut kept = api.get(&name).await.unwrap();
    old.expire();
    assert_ended(fence.raise(&old.tenure, &name).await);
    assert_ended(fence.replace(&old.tenure, kept.clone()).await);
    assert_never_fenced(fence.seen(&name).await);
    let annotations = kept.metadata.annotations.get_or_insert_default();
    annotations.insert(ANNOTATION.to_owned(), "nine".to_owned());
    api.replace(&name, &Default::default(), &kept)
        .await
        .unwrap();
    assert_unreadable(fence.seen(&name).await);
    assert_unreadable(fence.update(&new.tenure, &name, by("new")).await);
}

/// The policy on the docs page: the API server itself turns everybody away who is older.
#[tokio::test]
async fn the_admission_policy_fences_those_who_do_not_use_this() {
    let Some(server) = Kubernetes::start() else {
        return;
    };
    let api = api(&server).await;
    let (old, new) = two_leaders().await;
    let name = map(&api).await;
    let fence = KubernetesFence::new(api.clone());
    for (kind, at) in [
        (
            "kind: ValidatingAdmissionPolicy\n",
            "validatingadmissionpolicies",
        ),
        (
            "kind: ValidatingAdmissionPolicyBinding\n",
            "validatingadmissionpolicybindings",
        ),
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{at}");
        let (status, text) = server.ask_yaml("POST", &path, &support::from_docs("yaml", kind));
        assert_eq!(status, 201, "{text}");
    }
    fence.update(&new.tenure, &name, by("new")).await.unwrap();
    let write = async |token: Option<&str>| {
        let mut map = api.get(&name).await.unwrap();
        map.metadata.annotations =
            token.map(|token| [(ANNOTATION.to_owned(), token.to_owned())].into());
        api.replace(&name, &Default::default(), &map).await
    };
    // It takes a moment until the API server has read its own policy.
    while write(Some("7")).await.is_ok() {
        write(Some("9")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    write(Some("9")).await.unwrap();
    for older in [Some("7"), Some("nine"), Some("-1"), None] {
        let error = write(older).await.unwrap_err().to_string();
        assert!(error.contains("is out of date"), "{older:?}: {error}");
    }
    write(Some("10")).await.unwrap();
    assert_stale(fence.raise(&new.tenure, &name).await, 9, 10);
    assert_stale(fence.raise(&old.tenure, &name).await, 7, 10);
}
