//! The connector with somebody in between who counts, loses and forges answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientOptions, RetryConfig};
use tenure_net::{Tls, Verify};
use tenure_object::{BucketStore, Connector};
use tenure_testbed::Minio;

/// What is done to a request.
pub enum Deed {
    Pass,
    /// It goes through, and nobody hears of it.
    LoseAnswer,
    /// It does not go through, and this is answered.
    Answer(u16, &'static str),
    /// It goes through, and this is answered instead.
    AnswerInstead(u16, &'static str),
}

type Choose = dyn Fn(usize, &str) -> Deed + Send + Sync;

/// Between the client and the server.
#[derive(Clone)]
pub struct Between {
    inner: Connector,
    choose: Arc<Choose>,
    /// Method and status of every request.
    log: Arc<Mutex<Vec<String>>>,
}

struct Service {
    client: HttpClient,
    between: Between,
}

impl Between {
    pub fn counting() -> Self {
        Self::choosing(|_, _| Deed::Pass)
    }

    /// What to do with the request of this number and method.
    pub fn choosing(choose: impl Fn(usize, &str) -> Deed + Send + Sync + 'static) -> Self {
        let tls = Tls::new().client_config(Verify::Full).unwrap();
        let limit = Duration::from_secs(30);
        Self {
            inner: Connector::new(tls, limit, limit),
            choose: Arc::new(choose),
            log: Arc::default(),
        }
    }

    pub fn store(&self, minio: &Minio, prefix: &str) -> BucketStore {
        let key = minio.root_key();
        let retry = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let client = AmazonS3Builder::new()
            .with_bucket_name(minio.bucket())
            .with_endpoint(minio.endpoint())
            .with_access_key_id(key.id)
            .with_secret_access_key(key.secret)
            .with_retry(retry)
            .with_http_connector(self.clone())
            .build();
        BucketStore::with_client(Arc::new(client.unwrap()), prefix).unwrap()
    }

    /// What has been sent since this was asked last.
    pub fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

impl HttpConnector for Between {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service {
            client: self.inner.connect(options)?,
            between: self.clone(),
        }))
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let method = request.method().to_string();
        let number = self.between.log.lock().unwrap().len();
        let said = |status: u16| {
            let mut log = self.between.log.lock().unwrap();
            log.push(format!("{method} {status}"));
        };
        let forged = |status: u16, body: &'static str| {
            said(status);
            let answer = http::Response::builder().status(status);
            answer.body(body.to_owned().into()).unwrap()
        };
        match (self.between.choose)(number, &method) {
            Deed::Pass => {
                let answer = self.client.execute(request).await?;
                said(answer.status().as_u16());
                Ok(answer)
            }
            Deed::LoseAnswer => {
                self.client.execute(request).await?;
                said(0);
                let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                Err(HttpError::new(HttpErrorKind::Interrupted, lost))
            }
            Deed::Answer(status, body) => Ok(forged(status, body)),
            Deed::AnswerInstead(status, body) => {
                self.client.execute(request).await?;
                Ok(forged(status, body))
            }
        }
    }
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Between")
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service")
    }
}
