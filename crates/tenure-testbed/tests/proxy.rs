//! The proxy does to bytes what it says, and nothing else.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tenure_testbed::{Direction, Proxy, wait_until};

const LIMIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(120);

/// A server that answers every line with `answer`, and tells which lines came.
fn server() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (lines, came) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = lines.clone();
            thread::spawn(move || {
                let mut buffer = [0; 1000];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let line = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    if lines.send(line).is_err() || stream.write_all(b"answer").is_err() {
                        return;
                    }
                }
                let _ = lines.send("closed".to_owned());
            });
        }
    });
    (address, came)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn answer(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut buffer = [0; 1000];
    let length = stream.read(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn seconds(what: impl FnOnce()) -> Duration {
    let began = std::time::Instant::now();
    what();
    began.elapsed()
}

#[test]
fn bytes_go_through_and_are_counted() {
    let (address, came) = server();
    let proxy = Proxy::start(address);
    let mut client = connect(&proxy);
    client.write_all(b"hello").unwrap();
    assert_eq!(answer(&mut client).unwrap(), "answer");
    assert_eq!(came.recv_timeout(LIMIT).unwrap(), "hello");
    let traffic = proxy.traffic();
    assert_eq!((traffic.connections, traffic.open), (1, 1));
    assert_eq!((traffic.bytes_to_server, traffic.bytes_to_client), (5, 6));
    drop(client);
    assert_eq!(came.recv_timeout(LIMIT).unwrap(), "closed");
    wait_until("closed", LIMIT, || {
        (proxy.traffic().open == 0).then_some(())
    });
}

#[test]
fn delays_add_up_over_both_ways() {
    let (address, _came) = server();
    let proxy = Proxy::start(address);
    let mut client = connect(&proxy);
    proxy.delay(SHORT);
    let took = seconds(|| {
        client.write_all(b"hello").unwrap();
        answer(&mut client).unwrap();
    });
    assert!(took >= SHORT * 2, "{took:?}");
    proxy.heal();
    proxy.delay_one_way(Direction::ToClient, SHORT);
    let took = seconds(|| {
        client.write_all(b"hello").unwrap();
        answer(&mut client).unwrap();
    });
    assert!(took >= SHORT, "{took:?}");
}

#[test]
fn a_black_hole_holds_old_and_new_connections_until_healed() {
    let (address, came) = server();
    let proxy = Proxy::start(address);
    let mut old = connect(&proxy);
    old.write_all(b"first").unwrap();
    answer(&mut old).unwrap();
    came.recv_timeout(LIMIT).unwrap();
    proxy.black_hole();
    old.write_all(b"second").unwrap();
    let mut new = connect(&proxy);
    new.write_all(b"third").unwrap();
    assert!(came.recv_timeout(SHORT).is_err());
    proxy.heal();
    let mut lines = [(); 2].map(|()| came.recv_timeout(LIMIT).unwrap());
    lines.sort();
    assert_eq!(lines, ["second", "third"]);
    assert_eq!(answer(&mut old).unwrap(), "answer");
    assert_eq!(answer(&mut new).unwrap(), "answer");
}

#[test]
fn one_way_is_held_and_the_other_open() {
    let (address, came) = server();
    let proxy = Proxy::start(address);
    let mut client = connect(&proxy);
    proxy.hold(Direction::ToClient);
    client.write_all(b"hello").unwrap();
    assert_eq!(came.recv_timeout(LIMIT).unwrap(), "hello");
    client.set_read_timeout(Some(SHORT)).unwrap();
    let kind = answer(&mut client).unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut));
    proxy.heal();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(answer(&mut client).unwrap(), "answer");

    proxy.hold(Direction::ToServer);
    client.write_all(b"again").unwrap();
    assert!(came.recv_timeout(SHORT).is_err());
    proxy.heal();
    assert_eq!(came.recv_timeout(LIMIT).unwrap(), "again");
}

#[test]
fn a_reset_is_seen_as_one_and_new_connections_are_let_in() {
    let (address, _came) = server();
    let proxy = Proxy::start(address);
    let mut client = connect(&proxy);
    client.write_all(b"hello").unwrap();
    answer(&mut client).unwrap();
    proxy.reset();
    assert_eq!(
        answer(&mut client).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    let mut client = connect(&proxy);
    client.write_all(b"hello").unwrap();
    assert_eq!(answer(&mut client).unwrap(), "answer");
}

#[test]
fn refused_means_refused_until_healed() {
    let (address, _came) = server();
    let proxy = Proxy::start(address);
    let mut client = connect(&proxy);
    client.write_all(b"hello").unwrap();
    answer(&mut client).unwrap();
    proxy.refuse();
    assert_eq!(
        answer(&mut client).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    for _ in 0..3 {
        let error = TcpStream::connect(proxy.address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
    proxy.heal();
    let mut client = connect(&proxy);
    client.write_all(b"hello").unwrap();
    assert_eq!(answer(&mut client).unwrap(), "answer");
}

#[test]
fn a_cut_answer_has_reached_the_server_and_not_the_client() {
    let (address, came) = server();
    let proxy = Proxy::start(address);
    let mut bystander = connect(&proxy);
    let mut client = connect(&proxy);
    let cut = proxy.cut_answer_to("needle");
    for stream in [&mut bystander, &mut client] {
        stream.write_all(b"hello").unwrap();
        assert_eq!(answer(stream).unwrap(), "answer");
        came.recv_timeout(LIMIT).unwrap();
    }
    assert!(!cut.is_done());
    // In two pieces: the words are found all the same.
    client.write_all(b"has a nee").unwrap();
    assert_eq!(answer(&mut client).unwrap(), "answer");
    client.write_all(b"dle in it").unwrap();
    assert_eq!(
        answer(&mut client).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    assert!(cut.is_done());
    let lines: Vec<String> = came.iter().take(2).collect();
    assert_eq!(lines, ["has a nee", "dle in it"]);
    bystander.write_all(b"needle").unwrap();
    assert_eq!(answer(&mut bystander).unwrap(), "answer");
    let before = proxy.traffic().bytes_to_client;
    proxy.cut_next_answer();
    bystander.write_all(b"anything").unwrap();
    answer(&mut bystander).unwrap_err();
    assert_eq!(proxy.traffic().bytes_to_client, before);
}

#[test]
fn healing_calls_a_waiting_cut_off() {
    let (address, _came) = server();
    let proxy = Proxy::start(address);
    let mut client = connect(&proxy);
    let cut = proxy.cut_next_answer();
    proxy.heal();
    client.write_all(b"hello").unwrap();
    assert_eq!(answer(&mut client).unwrap(), "answer");
    assert!(!cut.is_done());
}

#[test]
fn a_server_that_is_not_there_resets_the_client() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let proxy = Proxy::start(address);
    let mut client = connect(&proxy);
    assert_eq!(
        answer(&mut client).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

#[test]
fn a_dropped_proxy_closes_its_port_and_connections() {
    let (address, _came) = server();
    let proxy = Proxy::start(address);
    let at = proxy.address();
    let mut client = connect(&proxy);
    client.write_all(b"hello").unwrap();
    answer(&mut client).unwrap();
    drop(proxy);
    answer(&mut client).unwrap_err();
    wait_until("the port to close", LIMIT, || TcpStream::connect(at).err());
}

#[tokio::test(start_paused = true)]
async fn a_cut_can_be_awaited_under_a_paused_clock() {
    let (address, _came) = server();
    let proxy = Proxy::start(address);
    let cut = proxy.cut_next_answer();
    let client = thread::spawn({
        let mut client = connect(&proxy);
        move || {
            client.write_all(b"hello").unwrap();
            answer(&mut client).unwrap_err();
        }
    });
    cut.done().await;
    client.join().unwrap();
}

#[test]
fn a_black_hole_hides_the_server_from_new_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap());
    proxy.black_hole();
    let _client = connect(&proxy);
    listener.set_nonblocking(true).unwrap();
    thread::sleep(SHORT);
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    proxy.heal();
    wait_until("the connection", LIMIT, || listener.accept().ok());
}
