//! A certificate authority of the test's own, with certificates for server and client.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Certificates and keys as PEM files in one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certs {
    folder: PathBuf,
}

impl Certs {
    /// Writes a new authority, a server certificate for `localhost` and 127.0.0.1, and a
    /// client certificate whose common name is `client`, all signed by the authority.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn write(folder: &Path, client: &str) -> Self {
        fs::create_dir_all(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let certs = Self {
            folder: folder.to_path_buf(),
        };
        certs
            .generate(client)
            .unwrap_or_else(|e| panic!("certificates: {e}"));
        certs
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The server's certificate.
    pub fn server_cert(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// The server's key.
    pub fn server_key(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    /// The client's certificate.
    pub fn client_cert(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    /// The client's key.
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    /// Gives all files to the user that the server runs as.
    pub(crate) fn give_to(&self, user: Option<(u32, u32)>) {
        let Some((uid, gid)) = user else { return };
        let files = [self.server_cert(), self.server_key(), self.ca()];
        for file in files {
            chown(&file, Some(uid), Some(gid))
                .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        }
    }

    fn generate(&self, client: &str) -> Result<(), rcgen::Error> {
        let ca_key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        name(&mut params, "tenure-testbed CA");
        let ca = params.self_signed(&ca_key)?;
        save(&self.ca(), &ca.pem());
        let issuer = Issuer::new(params, ca_key);

        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        // etcd's members are one another's clients with it.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        name(&mut params, "localhost");
        let key = KeyPair::generate()?;
        save(&self.server_cert(), &params.signed_by(&key, &issuer)?.pem());
        save(&self.server_key(), &key.serialize_pem());

        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        name(&mut params, client);
        let key = KeyPair::generate()?;
        save(&self.client_cert(), &params.signed_by(&key, &issuer)?.pem());
        save(&self.client_key(), &key.serialize_pem());
        Ok(())
    }
}

fn name(params: &mut CertificateParams, common_name: &str) {
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
}

/// PostgreSQL refuses a key that others can read.
fn save(path: &Path, text: &str) {
    let saved = fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o600)));
    saved.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
