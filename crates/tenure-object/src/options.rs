//! How the store is set up: plain data, or a URL.

use std::time::Duration;

use tenure::{Error, Result};
use tenure_net::{Secret, StoreUrl, Tls};

use crate::age::PEER_TTL;
use crate::place::{Cloud, Place};

/// The bucket, unless told otherwise: the one that LeaderElection.S3 takes.
const BUCKET: &str = "leader-election";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How a [`BucketStore`](crate::BucketStore) reaches its bucket.
#[derive(Clone, Debug)]
#[must_use = "these are only the options: open a store with them"]
pub struct ObjectOptions {
    pub(crate) cloud: Cloud,
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    pub(crate) object: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) path_style: bool,
    pub(crate) user: Option<String>,
    pub(crate) secret: Option<Secret>,
    pub(crate) session_token: Option<Secret>,
    pub(crate) service_account: Option<String>,
    pub(crate) metadata_endpoint: Option<String>,
    pub(crate) anonymous: bool,
    pub(crate) tls: Tls,
    pub(crate) connect_timeout: Duration,
    pub(crate) peer_ttl: Option<Duration>,
}

impl ObjectOptions {
    /// A bucket of S3, or of a service that speaks its language at an
    /// [`endpoint`](Self::endpoint): MinIO, Ceph, R2 and others.
    pub fn s3(bucket: impl Into<String>) -> Self {
        Self::of(Cloud::S3, bucket)
    }

    /// A bucket of Google Cloud Storage.
    pub fn gcs(bucket: impl Into<String>) -> Self {
        Self::of(Cloud::Gcs, bucket)
    }

    /// A container of Azure Blob Storage.
    pub fn azure(container: impl Into<String>) -> Self {
        Self::of(Cloud::Azure, container)
    }

    fn of(cloud: Cloud, bucket: impl Into<String>) -> Self {
        Self {
            cloud,
            bucket: bucket.into(),
            prefix: String::new(),
            object: None,
            endpoint: None,
            region: None,
            path_style: true,
            user: None,
            secret: None,
            session_token: None,
            service_account: None,
            metadata_endpoint: None,
            anonymous: false,
            tls: Tls::new(),
            connect_timeout: CONNECT_TIMEOUT,
            peer_ttl: None,
        }
    }

    /// From a URL: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. The
    /// bucket is `leader-election` if the URL names none.
    ///
    /// Credentials come from where each cloud's programs look for them, unless the URL has
    /// them: an access key as user and its secret as password for S3, the account and its
    /// key for Azure, `service-account=FILE` for Google.
    ///
    /// Further options: `endpoint`, `region`, `path-style`, `object`, `anonymous`,
    /// `peer-ttl`, `connect-timeout`, `tls-ca`, `tls-cert`, `tls-key`, `password-file`.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        let cloud = match url.scheme() {
            "s3" => Cloud::S3,
            "gs" => Cloud::Gcs,
            "az" => Cloud::Azure,
            other => {
                return Err(Error::invalid(format!(
                    "\"{other}:\" is no scheme of object storage: write s3://, gs:// or az://"
                )));
            }
        };
        let bucket = match url.hosts() {
            [] => BUCKET.to_owned(),
            [bucket] if bucket.port.is_none() => bucket.name.clone(),
            _ => {
                return Err(Error::invalid(format!(
                    "what stands behind {0}:// is the name of one bucket, without a port: write {0}://bucket/prefix?endpoint=URL",
                    url.scheme()
                )));
            }
        };
        let mut options = Self::of(cloud, bucket).prefix(url.path());
        options.endpoint = url.take("endpoint");
        options.object = url.take("object");
        options.peer_ttl = url.take_duration("peer-ttl")?;
        if let Some(timeout) = url.take_duration("connect-timeout")? {
            options.connect_timeout = timeout;
        }
        options.tls = Tls::from_url(&mut url)?;
        options.user = url.user().map(str::to_owned);
        match cloud {
            Cloud::S3 => {
                options.region = url.take("region");
                options.path_style = url.take_switch("path-style")?.unwrap_or(true);
            }
            Cloud::Gcs => options.service_account = url.take("service-account"),
            Cloud::Azure | Cloud::Given => {}
        }
        if cloud != Cloud::Gcs {
            options.anonymous = url.take_switch("anonymous")?.unwrap_or(false);
        }
        if options.user.is_some() {
            options.secret = url.take_password()?;
        }
        url.finish()?;
        options.check()?;
        Ok(options)
    }

    /// What the names of the objects begin with; a slash is put behind it.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        let prefix = prefix.as_ref().trim_end_matches('/');
        self.prefix = match prefix {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        self
    }

    /// The one object, below the prefix, that is the lease, whatever the key:
    /// LeaderElection.S3's `ObjectKey`. A second key on it is refused.
    pub fn object(mut self, name: impl Into<String>) -> Self {
        self.object = Some(name.into());
        self
    }

    /// Where the service is, if not at the cloud itself: `http://minio:9000`.
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// The region of S3, if the environment does not name it.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// On S3: the bucket in the path (on, as every service knows it) or in the host's name.
    pub fn path_style(mut self, on: bool) -> Self {
        self.path_style = on;
        self
    }

    /// An access key of S3 or the account of Azure, with its secret, instead of what the
    /// environment says.
    pub fn login(mut self, user: impl Into<String>, secret: Secret) -> Self {
        self.user = Some(user.into());
        self.secret = Some(secret);
        self
    }

    /// The session token that belongs to a temporary access key of S3.
    pub fn session_token(mut self, token: Secret) -> Self {
        self.session_token = Some(token);
        self
    }

    /// The file with the key of a Google service account.
    pub fn service_account(mut self, path: impl Into<String>) -> Self {
        self.service_account = Some(path.into());
        self
    }

    /// Where the machine's own credentials are asked for on S3, if not at the usual address.
    pub fn metadata_endpoint(mut self, url: impl Into<String>) -> Self {
        self.metadata_endpoint = Some(url.into());
        self
    }

    /// Asks without credentials: for emulators of S3 and Azure.
    pub fn anonymous(mut self, on: bool) -> Self {
        self.anonymous = on;
        self
    }

    /// Whom to trust at an `https` endpoint.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// How long making a connection may take; three seconds if not given.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The lease duration of peers of LeaderElection.S3, if it is not their default of
    /// thirty seconds: a record of theirs is left alone for at least so long.
    pub fn peer_ttl(mut self, ttl: Duration) -> Self {
        self.peer_ttl = Some(ttl);
        self
    }

    /// What has to be there, for people to run: a bucket, and these rights in it.
    pub fn schema(&self) -> String {
        let place = self.place();
        let (make, bucket, prefix) = (place.make(), &self.bucket, &self.prefix);
        match self.cloud {
            Cloud::S3 | Cloud::Given => {
                let objects = format!("arn:aws:s3:::{bucket}/{prefix}*");
                format!(
                    "# The bucket, and a policy with just the rights that leases need. Without\n\
                     # s3:ListBucket an absent object looks forbidden; s3:DeleteObject is only for\n\
                     # the throw-away object of `tenure init`.\n\
                     {make}\n\
                     cat > tenure-policy.json <<'END'\n\
                     {{ \"Version\": \"2012-10-17\", \"Statement\": [\n  \
                       {{ \"Effect\": \"Allow\", \"Action\": [\"s3:GetObject\", \"s3:PutObject\", \"s3:DeleteObject\"], \"Resource\": \"{objects}\" }},\n  \
                       {{ \"Effect\": \"Allow\", \"Action\": \"s3:ListBucket\", \"Resource\": \"arn:aws:s3:::{bucket}\" }} ] }}\n\
                     END\n"
                )
            }
            Cloud::Gcs => format!(
                "# The bucket, and the right to read and write objects in it:\n{make}\n\
                 gcloud storage buckets add-iam-policy-binding gs://{bucket} --member=MEMBER --role=roles/storage.objectUser\n"
            ),
            Cloud::Azure => format!(
                "# The container, and the right to read and write blobs in it:\n{make}\n\
                 az role assignment create --assignee WHO --role \"Storage Blob Data Contributor\" --scope CONTAINER\n"
            ),
        }
    }

    pub(crate) fn place(&self) -> Place {
        Place {
            cloud: self.cloud,
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            endpoint: self.endpoint.clone(),
        }
    }

    pub(crate) fn object_name(&self) -> Option<&str> {
        self.object.as_deref()
    }

    pub(crate) fn peer_ttl_or_default(&self) -> Duration {
        self.peer_ttl.unwrap_or(PEER_TTL)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.bucket.is_empty() {
            return Err(Error::invalid("no bucket is named: name one"));
        }
        if self.object.as_deref() == Some("") {
            return Err(Error::invalid(
                "the name of the object is empty: name it, or leave it out for an object per key",
            ));
        }
        let http = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        if self.endpoint.as_deref().is_some_and(|url| !http(url)) {
            return Err(Error::invalid(
                "the endpoint has to be a URL: write endpoint=https://host:port",
            ));
        }
        if self.anonymous && self.cloud == Cloud::Gcs {
            return Err(Error::invalid(
                "Google's client asks for credentials before each write: a gs: store cannot be anonymous",
            ));
        }
        if self.user.is_some() && self.cloud == Cloud::Gcs {
            return Err(Error::invalid(
                "a gs: URL has no user: name the file of a service account with service-account=FILE",
            ));
        }
        if self.user.is_some() && self.secret.is_none() && self.cloud == Cloud::S3 {
            return Err(Error::invalid(
                "the s3: URL has an access key but no secret: give it in the URL, by password-file=, TENURE_STORE_PASSWORD_FILE or TENURE_STORE_PASSWORD",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::ErrorKind;

    #[test]
    fn urls_are_understood() {
        let options = ObjectOptions::from_url("s3://").unwrap();
        assert_eq!(options.place().to_string(), "s3://leader-election/");
        let options = ObjectOptions::from_url(
            "s3://KEY:hunter2@b.1/a/b/?endpoint=http%3A%2F%2Fh%3A9000&region=eu-1&path-style=off&object=lock.json&peer-ttl=1m",
        )
        .unwrap();
        assert_eq!(options.place().to_string(), "s3://b.1/a/b/");
        assert_eq!(options.endpoint.as_deref(), Some("http://h:9000"));
        assert_eq!(options.peer_ttl_or_default(), Duration::from_secs(60));
        assert!(!options.path_style);
        for (url, shown) in [("gs://b/p", "gs://b/p/"), ("az://c", "az://c/")] {
            let options = ObjectOptions::from_url(url).unwrap();
            assert_eq!(options.place().to_string(), shown);
            assert!(options.schema().contains(&options.bucket));
        }
    }

    #[test]
    fn urls_that_cannot_be_are_refused() {
        for url in [
            "s3://a,b",
            "s3://a:9000/p",
            "s3://a?endpoint=h:9000",
            "s3://a?object=",
            "s3://a?regoin=x",
            "s3://a?path-style=maybe",
            "s3://KEY@a",
            "gs://me:pw@a",
            "gs://a?region=x",
            "gs://a?anonymous=on",
            "az://a?region=x",
            "ftp://a",
        ] {
            let error = ObjectOptions::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        }
        for url in [
            "s3://K:S@a/b//c",
            "s3://K:S@a/..",
            "s3://K:S@a?object=a%2F%2Fb",
        ] {
            let options = ObjectOptions::from_url(url).unwrap();
            let error = crate::BucketStore::open(options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = ObjectOptions::from_url("s3://KEY:hunter2@b")
            .unwrap()
            .session_token(Secret::new("hunter3".to_owned()));
        let mut shown = format!("{options:?} {}", options.schema());
        let store = crate::BucketStore::open(options).unwrap();
        shown += &format!("{store:?}");
        assert!(!shown.contains("hunter"), "{shown}");
    }

    #[test]
    fn the_schema_names_just_what_is_needed() {
        let schema = ObjectOptions::s3("b").prefix("leases").schema();
        for right in [
            "s3:GetObject",
            "s3:PutObject",
            "s3:ListBucket",
            "arn:aws:s3:::b/leases/*",
        ] {
            assert!(schema.contains(right), "{schema}");
        }
    }
}
