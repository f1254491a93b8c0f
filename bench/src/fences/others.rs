//! Objects, HTTP and files.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, UpdateVersion};
use tenure::Tenure;
use tenure_fences::file::FileFence;
use tenure_fences::http::{HttpFence, send_with};
use tenure_fences::object::{ObjectFence, ObjectWriter};
use tenure_testbed::Minio;

use crate::Pair;

type Pairs = Result<Vec<Box<dyn Pair>>>;

const CONTENT: &[u8] = &[b'x'; 1024];

struct InBucket {
    store: Arc<dyn ObjectStore>,
    last: Option<UpdateVersion>,
    writer: Option<ObjectWriter>,
    _server: Minio,
}

pub(crate) async fn object() -> Pairs {
    let Some(server) = Minio::start() else {
        return Ok(Vec::new());
    };
    let seconds = Duration::from_secs(30);
    let tls = tenure_net::Tls::new().client_config(tenure_net::Verify::Full)?;
    let key = server.root_key();
    let store = AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_bucket_name(server.bucket())
        .with_region("us-east-1")
        .with_access_key_id(key.id)
        .with_secret_access_key(key.secret)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_http_connector(tenure_object::Connector::new(tls, seconds, seconds))
        .build()?;
    Ok(vec![Box::new(InBucket {
        store: Arc::new(store),
        last: None,
        writer: None,
        _server: server,
    })])
}

#[async_trait]
impl Pair for InBucket {
    fn what(&self) -> &'static str {
        "object in MinIO, conditional PUT"
    }

    /// What a careful single writer does without a token too: it names what it replaces.
    async fn bare(&mut self) -> Result<()> {
        let mode = match self.last.take() {
            Some(version) => PutMode::Update(version),
            None => PutMode::Create,
        };
        let options = PutOptions::from(mode);
        let path = Path::from("bare");
        let put = self.store.put_opts(&path, CONTENT.into(), options);
        self.last = Some(put.await?.into());
        Ok(())
    }

    async fn fenced(&mut self, tenure: &Tenure) -> Result<()> {
        if self.writer.is_none() {
            let fence = ObjectFence::new(self.store.clone(), "fenced");
            self.writer = Some(fence.writer(tenure).await?);
        }
        if let Some(writer) = &mut self.writer {
            writer.put(CONTENT).await?;
        }
        Ok(())
    }
}

struct OverHttp {
    client: Client<HttpConnector, Full<bytes::Bytes>>,
    bare: String,
    fenced: String,
    _folder: tempfile::TempDir,
}

pub(crate) async fn http() -> Pairs {
    let folder = tempfile::tempdir()?;
    let fence = HttpFence::open(folder.path().join("fences.json"))?;
    let service = || axum::Router::new().route("/", axum::routing::post(|| async { "done" }));
    let serve = async |router: axum::Router| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, router).await });
        anyhow::Ok(url)
    };
    Ok(vec![Box::new(OverHttp {
        client: Client::builder(TokioExecutor::new()).build_http(),
        bare: serve(service()).await?,
        fenced: serve(service().layer(fence.layer("jobs")?)).await?,
        _folder: folder,
    })])
}

impl OverHttp {
    async fn post(&self, url: &str, tenure: Option<&Tenure>) -> Result<()> {
        let mut request = http::Request::post(url).body(Full::default())?;
        if let Some(tenure) = tenure {
            send_with(tenure, request.headers_mut())?;
        }
        let answer = self.client.request(request).await?;
        ensure!(answer.status().is_success(), "{}", answer.status());
        answer.into_body().collect().await?;
        Ok(())
    }
}

#[async_trait]
impl Pair for OverHttp {
    fn what(&self) -> &'static str {
        "HTTP, a POST on loopback"
    }

    async fn bare(&mut self) -> Result<()> {
        self.post(&self.bare, None).await
    }

    async fn fenced(&mut self, tenure: &Tenure) -> Result<()> {
        self.post(&self.fenced, Some(tenure)).await
    }
}

struct InFile {
    bare: PathBuf,
    fence: FileFence,
    _folder: tempfile::TempDir,
}

pub(crate) fn file() -> Pairs {
    let folder = tempfile::tempdir()?;
    Ok(vec![Box::new(InFile {
        bare: folder.path().join("bare"),
        fence: FileFence::new(folder.path().join("fenced")),
        _folder: folder,
    })])
}

#[async_trait]
impl Pair for InFile {
    fn what(&self) -> &'static str {
        "file, a durable append"
    }

    async fn bare(&mut self) -> Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.bare)?;
        file.write_all(CONTENT)?;
        Ok(file.sync_data()?)
    }

    async fn fenced(&mut self, tenure: &Tenure) -> Result<()> {
        Ok(self.fence.append(tenure, CONTENT)?)
    }
}
