//! TLS: rustls with aws-lc-rs, its authorities and the client's own certificate.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tenure::{Error, Result};

use crate::url::StoreUrl;

/// Whom to trust, and who we are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// How much of the server's certificate is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Its authority and its name.
    #[default]
    Full,
    /// Its authority only: libpq's `verify-ca`.
    Authority,
    /// Nothing: whoever stands in between can read and change everything. libpq's `require`.
    Nothing,
}

impl Tls {
    /// The authorities of this machine, no certificate of our own.
    pub fn new() -> Self {
        Self::default()
    }

    /// The files named by the options `tls-ca`, `tls-cert` and `tls-key`.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self> {
        let mut tls = Self::new();
        if let Some(path) = url.take("tls-ca") {
            tls.authorities = Some(file("tls-ca", &path)?);
        }
        match (url.take("tls-cert"), url.take("tls-key")) {
            (Some(certificate), Some(key)) => {
                tls.identity = Some((file("tls-cert", &certificate)?, file("tls-key", &key)?));
            }
            (None, None) => {}
            _ => {
                return Err(Error::invalid(
                    "tls-cert and tls-key belong together: name both files or none",
                ));
            }
        }
        // What is wrong with them is better said now than at the first connection.
        if tls != Self::new() {
            tls.client_config(Verify::Full)?;
        }
        Ok(tls)
    }

    /// Trusts these authorities (PEM) instead of the machine's.
    #[must_use = "it gives the changed value back"]
    pub fn authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities = Some(pem.into());
        self
    }

    /// Shows this certificate with its chain, and this key (both PEM), to the server.
    #[must_use = "it gives the changed value back"]
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Whether anything was said that only makes sense with TLS.
    pub fn is_default(&self) -> bool {
        *self == Self::new()
    }

    /// The authorities as PEM, if not the machine's.
    pub fn authorities_pem(&self) -> Option<&[u8]> {
        self.authorities.as_deref()
    }

    /// Certificate and key as PEM.
    pub fn identity_pem(&self) -> Option<(&[u8], &[u8])> {
        let (certificate, key) = self.identity.as_ref()?;
        Some((certificate, key))
    }

    /// What rustls needs, with aws-lc-rs whatever the process has installed.
    pub fn client_config(&self, verify: Verify) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let failed = |what: &str, error: &dyn fmt::Display| {
            Error::misconfigured(format!("{what} cannot be used: {error}"))
        };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed("TLS", &error))?;
        let builder = match verify {
            Verify::Full => builder.with_root_certificates(self.roots()?),
            Verify::Authority => {
                let roots = Arc::new(self.roots()?);
                let inner = WebPkiServerVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| failed("the authorities of tls-ca", &error))?;
                let verifier = NameUnchecked(inner);
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(verifier))
            }
            Verify::Nothing => {
                let verifier = Unchecked(provider);
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates("the file of tls-cert", certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| failed("the file of tls-key", &error))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| {
            failed(
                "the client certificate of tls-cert with the key of tls-key",
                &error,
            )
        })
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.authorities {
            for certificate in certificates("the file of tls-ca", pem)? {
                roots.add(certificate).map_err(|error| {
                    Error::misconfigured(format!(
                        "the file of tls-ca has a certificate that cannot be used: {error}"
                    ))
                })?;
            }
            return Ok(roots);
        }
        // A single odd certificate among the machine's is not worth failing for.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(Error::misconfigured(
                "this machine has no root certificates: install them (ca-certificates), or name the authority with tls-ca=FILE",
            ));
        }
        Ok(roots)
    }
}

/// The key is a secret, and the rest too long to read.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

fn file(option: &str, path: &str) -> Result<Vec<u8>> {
    std::fs::read(Path::new(path)).map_err(|error| {
        Error::misconfigured(format!(
            "the file {path} of {option} cannot be read ({error}): check its path and its rights"
        ))
    })
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found =
        found.map_err(|error| Error::misconfigured(format!("{what} is no PEM file: {error}")))?;
    if found.is_empty() {
        return Err(Error::misconfigured(format!(
            "{what} has no certificate in it: it has to be a PEM file"
        )));
    }
    Ok(found)
}

/// Checks everything but the name.
#[derive(Debug)]
struct NameUnchecked(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for NameUnchecked {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match self
            .0
            .verify_server_cert(certificate, chain, name, ocsp, now)
        {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Takes any certificate, as the user has asked for.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn files_named_in_the_url() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = pem();
        let path = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (good, key, bad) = (
            path("cert", &certificate),
            path("key", &key),
            path("bad", "no PEM"),
        );
        let read = |options: &str| {
            let mut url = StoreUrl::parse(&format!("x://h?{options}")).unwrap();
            let tls = Tls::from_url(&mut url);
            url.finish().unwrap();
            tls
        };
        assert!(read("").unwrap().is_default());
        let tls = read(&format!("tls-ca={good}&tls-cert={good}&tls-key={key}")).unwrap();
        assert!(tls.authorities_pem().is_some() && tls.identity_pem().is_some());
        assert!(!format!("{tls:?}").contains("PRIVATE"));
        for verify in [Verify::Full, Verify::Authority, Verify::Nothing] {
            tls.client_config(verify).unwrap();
        }
        for (options, kind) in [
            (format!("tls-cert={good}"), tenure::ErrorKind::Invalid),
            (format!("tls-ca={bad}"), tenure::ErrorKind::Misconfigured),
            (
                format!("tls-ca={good}.none"),
                tenure::ErrorKind::Misconfigured,
            ),
            (
                format!("tls-ca={good}&tls-cert={good}&tls-key={bad}"),
                tenure::ErrorKind::Misconfigured,
            ),
        ] {
            let error = read(&options).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        // A key of another certificate.
        let other = path("other", &pem().1);
        let error = read(&format!("tls-ca={good}&tls-cert={good}&tls-key={other}")).unwrap_err();
        assert!(error.to_string().contains("tls-key"), "{error}");
    }
}
