//! Kubernetes: the token is an annotation, and a write names the `resourceVersion` that it
//! replaces.
//!
//! The API server takes a replace only if the object still has the `resourceVersion` that
//! was read. So the check of the annotation and the write are one step, in one request for
//! a writer that keeps the object that came back from its last write.
//!
//! This fences those who write through it. To turn away everybody else too, let the API
//! server itself compare the annotation: the docs page has the admission policy.

use std::fmt::Debug;

use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure::{Tenure, Token};

use crate::error::{FenceError, Result};
use crate::token::{check, read_token, sendable};

/// The annotation that holds the token.
pub const ANNOTATION: &str = "tenure/token";

/// How often an update reads again after somebody else's write came first.
const TRIES_MAX: usize = 10;

/// The fence of the objects of one kind in one place.
///
/// ```no_run
/// # async fn write(api: kube::Api<k8s_openapi::api::core::v1::ConfigMap>, tenure: &tenure::Tenure) -> tenure_fences::Result<()> {
/// use tenure_fences::kubernetes::KubernetesFence;
///
/// let fence = KubernetesFence::new(api);
/// let mut map = fence
///     .update(tenure, "settings", |map| {
///         let data = map.data.get_or_insert_default();
///         data.insert("mode".to_owned(), "night".to_owned());
///     })
///     .await?; // two requests: read and replace
/// map.data = None;
/// let map = fence.replace(tenure, map).await?; // one request
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct KubernetesFence<K> {
    api: Api<K>,
}

impl<K> KubernetesFence<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    /// Fences the objects that this client reaches.
    pub fn new(api: Api<K>) -> Self {
        Self { api }
    }

    /// Makes a new object with the token in it. If there is one of that name already, that
    /// is the API server's own error.
    pub async fn create(&self, tenure: &Tenure, mut object: K) -> Result<K> {
        let token = sendable(tenure)?;
        mark(&mut object, token);
        Ok(self.api.create(&PostParams::default(), &object).await?)
    }

    /// Replaces an object that was read or written before: one request. If it was changed
    /// meanwhile, that is [`Stale`](FenceError::Stale) when a greater token did it, and
    /// [`Busy`](FenceError::Busy) otherwise: read it again.
    pub async fn replace(&self, tenure: &Tenure, mut object: K) -> Result<K> {
        let token = sendable(tenure)?;
        let name = object.name_any();
        if object.resource_version().is_none() {
            return Err(FenceError::Invalid(format!(
                "{name} has no resourceVersion: replace an object that was read, so that it can be compared"
            )));
        }
        pass(&object, token)?;
        mark(&mut object, token);
        match self.try_replace(&name, &object).await? {
            Some(written) => Ok(written),
            None => {
                pass(&self.api.get(&name).await?, token)?;
                Err(FenceError::Busy { resource: name })
            }
        }
    }

    /// Reads an object, changes it and replaces it, anew if somebody else's write came
    /// between the two.
    pub async fn update(&self, tenure: &Tenure, name: &str, change: impl Fn(&mut K)) -> Result<K> {
        for _ in 0..TRIES_MAX {
            let mut object = self.api.get(name).await?;
            // After the read, which may have taken long.
            let token = sendable(tenure)?;
            pass(&object, token)?;
            change(&mut object);
            mark(&mut object, token);
            if let Some(written) = self.try_replace(name, &object).await? {
                return Ok(written);
            }
        }
        let resource = name.to_owned();
        Err(FenceError::Busy { resource })
    }

    /// Raises the fence of an object and changes nothing else in it.
    pub async fn raise(&self, tenure: &Tenure, name: &str) -> Result<()> {
        sendable(tenure)?;
        self.update(tenure, name, |_| {}).await.map(drop)
    }

    /// The greatest token that has been at this object.
    pub async fn seen(&self, name: &str) -> Result<Token> {
        let token = kept(&self.api.get(name).await?)?;
        token.ok_or_else(|| FenceError::NeverFenced {
            resource: name.to_owned(),
        })
    }

    /// None if the object was changed since it was read.
    async fn try_replace(&self, name: &str, object: &K) -> Result<Option<K>> {
        match self.api.replace(name, &PostParams::default(), object).await {
            Ok(written) => Ok(Some(written)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<kube::Error> for FenceError {
    fn from(error: kube::Error) -> Self {
        FenceError::resource(error)
    }
}

fn mark<K: Resource>(object: &mut K, token: Token) {
    let annotations = object.annotations_mut();
    annotations.insert(ANNOTATION.to_owned(), token.to_string());
}

fn pass<K: Resource>(object: &K, token: Token) -> Result<()> {
    check(token, kept(object)?.unwrap_or_default())
}

fn kept<K: Resource>(object: &K) -> Result<Option<Token>> {
    let Some(text) = object.annotations().get(ANNOTATION) else {
        return Ok(None);
    };
    let token = read_token(text);
    let token = token.map_err(|_| FenceError::unreadable(&object.name_any(), text));
    token.map(Some)
}
