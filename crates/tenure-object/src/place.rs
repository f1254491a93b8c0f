//! Where the leases lie: the service, the bucket, and what to do about each that is missing.

use std::fmt;

use crate::failure::Wanted;

/// Whose object storage it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cloud {
    S3,
    Gcs,
    Azure,
    /// The caller's own client: we do not know.
    Given,
}

/// Service and bucket, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cloud: Cloud,
    pub(crate) bucket: String,
    /// Ends with a slash unless it is empty.
    pub(crate) prefix: String,
    pub(crate) endpoint: Option<String>,
}

impl Place {
    fn noun(&self) -> &'static str {
        match self.cloud {
            Cloud::Azure => "container",
            _ => "bucket",
        }
    }

    /// Whether this code says that the bucket itself is not there.
    pub(crate) fn is_missing(&self, code: Option<&str>) -> bool {
        matches!(code, Some("NoSuchBucket" | "ContainerNotFound"))
    }

    /// What is wrong and the command that makes the bucket.
    pub(crate) fn missing(&self) -> String {
        format!(
            "there is no {} \"{}\": make it ({})",
            self.noun(),
            self.bucket,
            self.make()
        )
    }

    /// The command that makes the bucket.
    pub(crate) fn make(&self) -> String {
        let bucket = &self.bucket;
        match self.cloud {
            Cloud::S3 => {
                let endpoint = self.endpoint.as_deref();
                let endpoint = endpoint.map_or(String::new(), |e| format!(" --endpoint-url {e}"));
                format!("aws s3api create-bucket --bucket {bucket}{endpoint}")
            }
            Cloud::Gcs => format!("gcloud storage buckets create gs://{bucket}"),
            Cloud::Azure => format!("az storage container create --name {bucket}"),
            Cloud::Given => "with the tools of your service".to_owned(),
        }
    }

    /// Where credentials come from.
    pub(crate) fn credentials(&self) -> &'static str {
        match self.cloud {
            Cloud::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine, task or pod a role"
            }
            Cloud::Gcs => {
                "set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT, or give the machine or pod a service account"
            }
            Cloud::Azure => {
                "set AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_CLIENT_ID and its kin, or give the machine or pod an identity"
            }
            Cloud::Given => "give your client some",
        }
    }

    /// Which right is missing.
    pub(crate) fn right(&self, wanted: Wanted) -> String {
        let prefix = &self.prefix;
        let bucket = &self.bucket;
        match (self.cloud, wanted) {
            (Cloud::S3, Wanted::Read) => format!(
                "allow s3:GetObject on arn:aws:s3:::{bucket}/{prefix}* and s3:ListBucket on arn:aws:s3:::{bucket}, without which an absent object looks forbidden"
            ),
            (Cloud::S3, Wanted::Write) => {
                format!("allow s3:PutObject on arn:aws:s3:::{bucket}/{prefix}*")
            }
            (Cloud::S3, Wanted::List) => format!("allow s3:ListBucket on arn:aws:s3:::{bucket}"),
            (Cloud::S3, Wanted::Delete) => {
                format!("allow s3:DeleteObject on arn:aws:s3:::{bucket}/{prefix}*")
            }
            (Cloud::Gcs, _) => {
                format!("grant roles/storage.objectUser on gs://{bucket}")
            }
            (Cloud::Azure, _) => {
                format!("grant Storage Blob Data Contributor on the container {bucket}")
            }
            (Cloud::Given, _) => "give the client's credentials that right".to_owned(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.cloud {
            Cloud::S3 => "s3",
            Cloud::Gcs => "gs",
            Cloud::Azure => "az",
            Cloud::Given => return f.write_str("the object store"),
        };
        write!(f, "{scheme}://{}/{}", self.bucket, self.prefix)
    }
}
