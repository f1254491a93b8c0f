//! One HTTPS request by hand, for an administrator's word to a server.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Asks one server, as whoever has the token.
#[derive(Clone, Debug)]
pub(crate) struct Https {
    config: Arc<ClientConfig>,
    address: SocketAddr,
    token: String,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Https {
    pub(crate) fn new(ca: &Path, address: SocketAddr, token: &str) -> Self {
        let pem = fs::read(ca).unwrap_or_else(|e| panic!("{}: {e}", ca.display()));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.unwrap_or_else(|e| panic!("{}: {e}", ca.display()));
            let added = roots.add(certificate);
            added.unwrap_or_else(|e| panic!("{}: {e}", ca.display()));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap_or_else(|e| panic!("{e}"))
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            config: Arc::new(config),
            address,
            token: token.to_owned(),
        }
    }

    /// Sends it as HTTP/1.0, so that the answer ends with the connection.
    pub(crate) fn try_ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> io::Result<Answer> {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        self.try_ask_in(content, method, path, body)
    }

    /// The same with a body of this type.
    pub(crate) fn try_ask_in(
        &self,
        content: &str,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> io::Result<Answer> {
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let tls = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut stream = StreamOwned::new(tls, stream);
        let (token, text) = (&self.token, body.unwrap_or_default());
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: {content}\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )?;
        stream.flush()?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // Some servers close without saying goodbye.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && !answer.is_empty() => {}
            other => drop(other?),
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("an answer that is no HTTP"))?;
        Ok(Answer {
            status,
            body: body.to_owned(),
        })
    }
}
