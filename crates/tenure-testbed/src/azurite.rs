//! Azurite: Microsoft's emulator of Azure Blob Storage, and a container in it.

use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::ports::Port;
use crate::program::{built, find, not_built};
use crate::run::{self, Place};
use crate::server::{Failure, Server, Spec, begin_on_free_port};
use crate::wire::Wire;

const PROGRAM: &str = "azurite-3.37.0/node_modules/.bin/azurite-blob";
const SCRIPT: &str = "crates/tenure-testbed/build-azurite";
const CONTAINER: &str = "leases";
/// The account that every Azurite has, with the key that everybody knows.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Makes the container: Azure wants a signed request, and node is there anyway.
const MAKE_CONTAINER: &str = r#"
const [account, key, port, container] = process.argv.slice(1);
const date = new Date().toUTCString(), version = '2021-08-06';
const text = `PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:${date}\nx-ms-version:${version}\n/${account}/${account}/${container}\nrestype:container`;
const mac = require('crypto').createHmac('sha256', Buffer.from(key, 'base64')).update(text, 'utf8').digest('base64');
const headers = { 'x-ms-date': date, 'x-ms-version': version, 'Content-Length': 0, Authorization: `SharedKey ${account}:${mac}` };
const path = `/${account}/${container}?restype=container`;
require('http').request({ host: '127.0.0.1', port, method: 'PUT', path, headers }, (answer) => {
  answer.resume();
  process.exitCode = answer.statusCode == 201 ? 0 : 1;
}).end();
"#;

/// A private Azurite with one container, `leases`.
#[derive(Clone, Debug)]
pub struct Azurite {
    server: Server,
}

impl Azurite {
    /// A server of the caller's own. `None` if it was never installed, which is then said
    /// (and is a failure with `CI=true`).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start() -> Option<Self> {
        let (Some(program), Some(node)) = (built(PROGRAM), find("node")) else {
            not_built("Azurite", SCRIPT);
            return None;
        };
        let azurite = begin_on_free_port(|| Self::begin(&program));
        let made = Command::new(node)
            .args(["-e", MAKE_CONTAINER, ACCOUNT, KEY])
            .args([&azurite.port().to_string(), CONTAINER])
            .output()
            .unwrap_or_else(|e| panic!("node: {e}"));
        let error = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "no container in Azurite: {error}");
        Some(azurite)
    }

    /// One server for all tests of this process, private all the same: do not break it.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Azurite>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    fn begin(program: &Path) -> Result<Self, Failure> {
        let folder = run::folder("azurite", Place::Disk);
        let data = folder.join("data");
        fs::create_dir_all(&data).unwrap_or_else(|e| panic!("{}: {e}", data.display()));
        let port = Port::claim();
        let address = port.address();
        let args = [
            OsString::from("--location"),
            data.into(),
            "--blobHost".into(),
            "127.0.0.1".into(),
            "--blobPort".into(),
            port.number().to_string().into(),
            "--silent".into(),
            "--skipApiVersionCheck".into(),
            "--disableTelemetry".into(),
        ];
        let server = Server::begin(Spec {
            name: "azurite",
            program: program.to_path_buf(),
            args: args.into(),
            user: None,
            clock: None,
            folder,
            ports: vec![port],
            stop_signal: Signal::SIGTERM,
            wire: Wire::Raw,
            ready: Box::new(move || accepts(address)),
        })?;
        Ok(Self { server })
    }

    /// The URL of its container below this prefix, with all rights.
    pub fn url(&self, prefix: &str) -> String {
        let login = crate::login(ACCOUNT, Some(KEY));
        let endpoint = format!("http://{}/{ACCOUNT}", self.address());
        let endpoint = crate::percent(&endpoint);
        format!("az://{login}{CONTAINER}/{prefix}?endpoint={endpoint}")
    }
}

impl Deref for Azurite {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// It listens once it serves.
fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
