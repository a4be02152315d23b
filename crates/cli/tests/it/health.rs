//! `toolgate health` against a server that is there, one that is not, and one that says something else.

use std::io::{Read, Write};
use std::net::TcpListener;

use toolgate_tests::{Backend, TestServer};

use crate::program::run;

fn asked(address: &str) -> (bool, String) {
    let output = run(&["health", "--address", address]);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn health_follows_the_server() {
    let server = TestServer::start(Backend::Sqlite).await;
    let address = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    assert_eq!(asked(&address), (true, "ready\n".to_owned()));
    server.stop().await;
    let (ready, text) = asked(&address);
    assert!(!ready && text.contains("refused"), "{text}");
}

#[test]
fn any_other_answer_is_not_ready() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let read = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let (ready, text) = asked(&address);
    assert!(!ready && text.contains("503"), "{text}");
    assert!(answering.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\n"));
}
