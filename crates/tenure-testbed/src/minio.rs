//! MinIO: a bucket of S3 on one drive.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::certs::Certs;
use crate::ports::Port;
use crate::program::{built, not_built};
use crate::run::{self, Place};
use crate::server::{Failure, Server, Spec, begin_on_free_port};
use crate::wire::Wire;

/// The one that `build-minio` builds: the tests say in which version they have passed.
const VERSION: &str = "v0.0.0-20260212201848-7aac2a2c5b7c";
const USER: &str = "tenure";
const PASSWORD: &str = "tenure-testbed";
const BUCKET: &str = "leases";

/// A private MinIO server with one bucket, `leases`.
///
/// See [`Server`] for what can be done to it.
#[derive(Clone, Debug)]
pub struct Minio {
    server: Server,
    certs: Option<Certs>,
}

/// An access key with the token that belongs to it.
#[derive(Clone, Debug)]
pub struct AccessKey {
    /// Its name.
    pub id: String,
    /// Its secret.
    pub secret: String,
    /// The session's token, if it is a temporary one.
    pub token: Option<String>,
}

impl Minio {
    /// A server of the caller's own. `None` if it was never built on this machine, which
    /// is then said (and is a failure with `CI=true`).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start() -> Option<Self> {
        Self::begin(false)
    }

    /// A server that only speaks TLS; see [`certs`](Self::certs).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start_tls() -> Option<Self> {
        Self::begin(true)
    }

    /// One server for all tests of this process, private all the same: do not break it.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Minio>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    fn begin(tls: bool) -> Option<Self> {
        let Some(program) = built(&format!("minio-{VERSION}")) else {
            not_built("MinIO", "crates/tenure-testbed/build-minio");
            return None;
        };
        Some(begin_on_free_port(|| Self::begin_at(&program, tls)))
    }

    fn begin_at(program: &Path, tls: bool) -> Result<Self, Failure> {
        let folder = run::folder("minio", run::Place::Disk);
        let data = folder.join("data");
        let port = Port::claim();
        let address = port.address();
        // A folder on the drive is a bucket.
        make(&data.join(BUCKET));
        let certs_folder = folder.join("served");
        make(&certs_folder);
        let certs = tls.then(|| Certs::write(&run::folder("minio-certs", Place::Disk), "client"));
        if let Some(certs) = &certs {
            copy(&certs.server_cert(), &certs_folder.join("public.crt"));
            copy(&certs.server_key(), &certs_folder.join("private.key"));
        }
        // By a shell, since a server is given arguments, and MinIO takes its settings from
        // the environment.
        let script = format!(
            "MINIO_ROOT_USER={USER} MINIO_ROOT_PASSWORD={PASSWORD} MINIO_BROWSER=off MINIO_UPDATE=off \
             MINIO_API_REQUESTS_MAX=1000 GOMAXPROCS=2 exec \"$0\" server --quiet --anonymous --address {address} --certs-dir \"$1\" \"$2\""
        );
        let args = [
            OsString::from("-c"),
            script.into(),
            program.into(),
            certs_folder.into(),
            data.into(),
        ];
        let server = Server::begin(Spec {
            name: "minio",
            program: "/bin/sh".into(),
            args: args.into(),
            user: None,
            clock: None,
            folder,
            ports: vec![port],
            stop_signal: Signal::SIGTERM,
            // One request at a time on a connection.
            wire: Wire::Raw,
            ready: Box::new(move || is_ready(address, tls)),
        })?;
        Ok(Self { server, certs })
    }

    /// The URL of its bucket below this prefix, with all rights.
    pub fn url(&self, prefix: &str) -> String {
        self.url_at(self.address(), prefix)
    }

    /// The same URL at another address: of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, address: SocketAddr, prefix: &str) -> String {
        let login = crate::login(USER, Some(PASSWORD));
        let endpoint = crate::percent(&self.endpoint_at(address));
        format!("s3://{login}{BUCKET}/{prefix}?endpoint={endpoint}&region=us-east-1")
    }

    /// Where it is: `http://127.0.0.1:PORT`, or `https` with TLS.
    pub fn endpoint(&self) -> String {
        self.endpoint_at(self.address())
    }

    fn endpoint_at(&self, address: SocketAddr) -> String {
        let scheme = if self.certs.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{address}")
    }

    /// The name of its bucket.
    pub fn bucket(&self) -> &'static str {
        BUCKET
    }

    /// The key with all rights.
    pub fn root_key(&self) -> AccessKey {
        AccessKey {
            id: USER.to_owned(),
            secret: PASSWORD.to_owned(),
            token: None,
        }
    }

    /// A key that may do just this: `["s3:GetObject", "s3:ListBucket"]`.
    ///
    /// # Panics
    /// If there is no `curl`, or the server refuses it.
    pub fn key_with(&self, actions: &[&str]) -> AccessKey {
        let actions: Vec<String> = actions
            .iter()
            .map(|action| format!("\"{action}\""))
            .collect();
        let policy = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Action":[{}],"Resource":["arn:aws:s3:::{BUCKET}","arn:aws:s3:::{BUCKET}/*"]}}]}}"#,
            actions.join(",")
        );
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "30", "--insecure"])
            .args(["--aws-sigv4", "aws:amz:us-east-1:sts"])
            .arg("--user")
            .arg(format!("{USER}:{PASSWORD}"))
            .args(["--data-urlencode", "Action=AssumeRole"])
            .args(["--data-urlencode", "Version=2011-06-15"])
            .args(["--data-urlencode", "DurationSeconds=3600"])
            .arg("--data-urlencode")
            .arg(format!("Policy={policy}"))
            .arg(self.endpoint())
            .output()
            .unwrap_or_else(|e| panic!("curl: {e}"));
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        let part = |name: &str| {
            let (_, rest) = answer.split_once(&format!("<{name}>"))?;
            Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
        };
        let key = (part("AccessKeyId"), part("SecretAccessKey"));
        let (Some(id), Some(secret)) = key else {
            let error = String::from_utf8_lossy(&output.stderr);
            panic!("MinIO gave no key: {answer} {error}");
        };
        let token = part("SessionToken");
        AccessKey { id, secret, token }
    }

    /// The certificates of a server with TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }
}

impl Deref for Minio {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn make(folder: &Path) {
    fs::create_dir_all(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
}

fn is_ready(address: SocketAddr, tls: bool) -> bool {
    if tls {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--max-time", "5", "--insecure"])
            .arg(format!("https://{address}/minio/health/cluster"));
        return curl.output().is_ok_and(|output| output.status.success());
    }
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /minio/health/cluster HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}
