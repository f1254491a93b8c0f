//! Counts the round trips on a connection: how often the client spoke after it was answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A relay before one server, for clients that wait for each answer.
pub struct Turns {
    pub address: SocketAddr,
    count: Arc<AtomicU64>,
}

impl Turns {
    pub async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(relay(client, server, counted.clone()));
            }
        });
        Self { address, count }
    }

    pub fn so_far(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, count: Arc<AtomicU64>) {
    let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
    let mut clients_turn = true;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(bytes @ 1..) = read else { return };
                if std::mem::take(&mut clients_turn) {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                if server.write_all(&asked[..bytes]).await.is_err() { return }
            }
            read = server.read(&mut answered) => {
                let Ok(bytes @ 1..) = read else { return };
                clients_turn = true;
                if client.write_all(&answered[..bytes]).await.is_err() { return }
            }
        }
    }
}
