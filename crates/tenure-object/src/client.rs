//! The client of each cloud, with the cloud's own chain of credentials and no retries.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AwsCredential, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ObjectStore, RetryConfig, StaticCredentialProvider};
use rustls::{ClientConfig, RootCertStore};
use tenure::{Error, Result};
use tenure_net::Verify;

use crate::connector::Connector;
use crate::options::ObjectOptions;
use crate::place::Cloud;

/// Nobody waits longer for a request; an elector gives it up long before.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

impl ObjectOptions {
    pub(crate) fn client(&self) -> Result<Arc<dyn ObjectStore>> {
        self.check()?;
        let connector = Connector::new(self.tls_config()?, self.connect_timeout, REQUEST_TIMEOUT);
        let built = match self.cloud {
            Cloud::S3 => self.s3_client(connector),
            Cloud::Gcs => self.gcs_client(connector),
            Cloud::Azure => self.azure_client(connector),
            Cloud::Given => {
                return Err(Error::invalid("the options name no cloud: use with_client"));
            }
        };
        built.map_err(|error| {
            // The text of a builder's error names options, never their values of secrets.
            let text = error.to_string();
            Error::misconfigured(format!("{} cannot be used: {text}", self.place()))
        })
    }

    fn s3_client(&self, connector: Connector) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&self.bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(no_retries())
            .with_http_connector(connector);
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if !self.path_style {
            builder = builder.with_virtual_hosted_style_request(true);
        }
        if let Some(endpoint) = &self.endpoint {
            let endpoint = match self.path_style {
                true => endpoint.clone(),
                false => in_host(endpoint, &self.bucket),
            };
            builder = builder.with_endpoint(endpoint);
        }
        if let (Some(user), Some(secret)) = (&self.user, &self.secret) {
            // Instead of all that the environment says, also of a session token.
            let credential = AwsCredential {
                key_id: user.clone(),
                secret_key: secret.expose().to_owned(),
                token: self
                    .session_token
                    .as_ref()
                    .map(|token| token.expose().to_owned()),
            };
            let credentials = StaticCredentialProvider::new(credential);
            builder = builder.with_credentials(Arc::new(credentials));
        }
        if let Some(endpoint) = &self.metadata_endpoint {
            builder = builder.with_metadata_endpoint(endpoint);
        }
        if self.anonymous {
            builder = builder.with_skip_signature(true);
        }
        Ok(Arc::new(builder.build()?))
    }

    fn gcs_client(&self, connector: Connector) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(&self.bucket)
            .with_retry(no_retries())
            .with_http_connector(connector);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_base_url(endpoint.trim_end_matches('/'));
        }
        if let Some(path) = &self.service_account {
            builder = builder.with_service_account_path(path);
        }
        Ok(Arc::new(builder.build()?))
    }

    fn azure_client(&self, connector: Connector) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = MicrosoftAzureBuilder::from_env()
            .with_container_name(&self.bucket)
            .with_retry(no_retries())
            .with_http_connector(connector);
        if let Some(account) = &self.user {
            builder = builder.with_account(account);
        }
        if let Some(secret) = &self.secret {
            builder = builder.with_access_key(secret.expose());
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        if self.anonymous {
            builder = builder.with_skip_signature(true);
        }
        Ok(Arc::new(builder.build()?))
    }

    fn tls_config(&self) -> Result<ClientConfig> {
        let config = self.tls.client_config(Verify::Full);
        let plain = self.endpoint.as_deref();
        let plain = plain.is_some_and(|endpoint| endpoint.starts_with("http://"));
        if config.is_ok() || !plain || !self.tls.is_default() {
            return config;
        }
        // A machine without root certificates needs none for an endpoint without TLS.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::misconfigured(format!("TLS cannot be used: {error}")))?;
        let builder = builder.with_root_certificates(RootCertStore::empty());
        Ok(builder.with_no_client_auth())
    }
}

/// A write that is sent again by somebody in between is refused because of itself.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// `https://host` as `https://bucket.host`.
fn in_host(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) => format!("{scheme}://{bucket}.{host}"),
        None => endpoint.to_owned(),
    }
}
