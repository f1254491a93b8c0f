//! The suite that every store passes: on the stand-in, and on a real server if one is named.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod standin;

use std::sync::Arc;
use std::time::Duration;

use tenure::{Key, Store};
use tenure_conformance::{Harness, async_trait};
use tenure_sqlserver::{SqlServerOptions, SqlServerStore, tiberius};

use standin::{StandIn, TABLE, open};

/// The text of our batches, run by a stand-in of our own: see `standin/mod.rs`.
struct OnStandIn {
    server: StandIn,
}

fn stored(key: &Key) -> String {
    let end = if key.as_str().ends_with(' ') {
        "\u{1f}"
    } else {
        ""
    };
    format!("{key}{end}")
}

#[async_trait]
impl Harness for OnStandIn {
    async fn start() -> Self {
        let server = StandIn::start().await;
        server.store().await;
        Self { server }
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(open(&self.server.url()))
    }

    async fn delete_record(&self, key: &Key) {
        self.server.database.delete(TABLE, &stored(key));
    }
}

/// A table of its own, dropped again, on the server that TENURE_TEST_SQLSERVER_URL names.
/// No SQL Server can be installed by our tests, so these are run only when they are asked
/// for: `cargo test -p tenure-sqlserver -- --ignored`.
#[derive(Clone)]
struct Real {
    url: String,
    table: String,
}

const VARIABLE: &str = "TENURE_TEST_SQLSERVER_URL";

impl Real {
    fn options(&self) -> SqlServerOptions {
        let options = SqlServerOptions::from_url(&self.url).unwrap();
        options.table("dbo", self.table.as_str())
    }

    /// A plain connection of tiberius, as an operator has it with `sqlcmd`.
    async fn by_hand(&self, batch: &str, parameters: &[&dyn tiberius::ToSql]) {
        let url = tenure_net::StoreUrl::parse(&self.url);
        let mut url = url.unwrap();
        let mut config = tiberius::Config::new();
        let host = &url.hosts()[0];
        let address = host.with_port(1433);
        config.host(&host.name);
        if !url.path().is_empty() {
            config.database(url.path());
        }
        let user = url.user().unwrap_or_default().to_owned();
        let password = url.take_password().unwrap();
        let password = password.as_ref().map_or("", |password| password.expose());
        config.authentication(tiberius::AuthMethod::sql_server(user, password));
        match url.take("encrypt").as_deref() {
            Some("off" | "false") => config.encryption(tiberius::EncryptionLevel::NotSupported),
            Some("strict") => config.encryption(tiberius::EncryptionLevel::Strict),
            _ => config.encryption(tiberius::EncryptionLevel::Required),
        }
        config.trust_cert();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        use tokio_util::compat::TokioAsyncWriteCompatExt;
        let client = tiberius::Client::connect(config, stream.compat_write()).await;
        client.unwrap().execute(batch, parameters).await.unwrap();
    }
}

#[async_trait]
impl Harness for RealTable {
    async fn start() -> Self {
        let url = std::env::var(VARIABLE);
        let url = url.unwrap_or_else(|_| panic!("name a SQL Server in {VARIABLE}"));
        let table = tenure_testbed::unique("Leases");
        let real = Real { url, table };
        let store = SqlServerStore::open(real.options()).unwrap();
        store.init().await.unwrap();
        Self(real)
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqlServerStore::open(self.0.options()).unwrap())
    }

    async fn delete_record(&self, key: &Key) {
        let delete = format!("DELETE FROM dbo.[{}] WHERE LeaseKey = @P1", self.0.table);
        self.0.by_hand(&delete, &[&stored(key)]).await;
    }

    /// The clock of older Windows moves in steps of 15.6 ms.
    fn token_step(&self) -> Duration {
        Duration::from_millis(40)
    }
}

/// Dropped with the test, also when that has failed.
struct RealTable(Real);

impl Drop for RealTable {
    fn drop(&mut self) {
        let real = self.0.clone();
        let drop_it = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let batch = format!("DROP TABLE dbo.[{}]", real.table);
            runtime.unwrap().block_on(real.by_hand(&batch, &[]));
        };
        let _ = std::thread::spawn(drop_it).join();
    }
}

mod stand_in {
    tenure_conformance::conformance!(super::OnStandIn);
}

mod real {
    tenure_conformance::conformance!(
        super::RealTable,
        ignore = "no SQL Server can be installed here: name one in TENURE_TEST_SQLSERVER_URL"
    );
}
