//! Tests of clients that are slow, disconnect, send too much or send invalid data.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use turnwise_serve::{Limits, Server};

use crate::client::{body, chat, start};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

fn post(words: &str) -> Vec<u8> {
    let length = words.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{words}"
    )
    .into_bytes()
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Returns everything received until the server closes the connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset connection has ended, too.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_client_that_goes_away_ends_its_request() {
    let (server, gone) = start(Limits::default(), None);
    for (words, more) in [("never", ""), ("never", r#", "stream": true"#), ("stream", r#", "stream": true"#)]
    {
        let mut stream = connect(&server);
        stream.write_all(&post(&body(words, more))).unwrap();
        if words == "stream" {
            stream.read_exact(&mut [0; 4000]).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(gone.try_recv().is_err(), "the client still waits");
        drop(stream);
        gone.recv_timeout(LONG).unwrap();
    }
}

#[test]
fn a_client_that_does_not_read_loses_its_connection() {
    let (server, gone) = start(Limits { write: SHORT, ..Limits::default() }, None);
    let mut stream = connect(&server);
    stream.write_all(&post(&body("stream", r#", "stream": true"#))).unwrap();
    // Megabytes fit into the system's buffers; then writes block.
    assert!(gone.recv_timeout(Duration::from_mins(1)).unwrap() > 0);
}

#[test]
fn slow_heads_and_bodies_end_at_a_deadline() {
    let limits = Limits { head: SHORT, body: SHORT, answer: SHORT, ..Limits::default() };
    let (server, _gone) = start(limits, None);
    let begun = Instant::now();
    let mut head = connect(&server);
    head.write_all(b"POST /v1/chat").unwrap();
    let mut slow = connect(&server);
    let whole = post(&body("hello", ""));
    slow.write_all(&whole[..whole.len() - 5]).unwrap();
    let mut idle = connect(&server);
    rest(&mut head);
    assert!(rest(&mut slow).starts_with("HTTP/1.1 408"));
    rest(&mut idle);
    assert!(begun.elapsed() < LONG, "connections end soon after their deadlines");
    // A request without an answer in time.
    let (status, text) = chat(&server, "never", "");
    assert_eq!(status, 504, "{text}");
}

#[test]
fn bodies_that_are_too_long_are_rejected_unread() {
    let (server, _gone) = start(Limits { body_bytes: 10_000, ..Limits::default() }, None);
    let (status, text) = chat(&server, &"a".repeat(20_000), "");
    assert!(status == 413 && text.contains("10000 bytes"), "{status} {text}");
    // A body without a declared length.
    let mut stream = connect(&server);
    stream
        .write_all(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
              Transfer-Encoding: chunked\r\n\r\n",
        )
        .unwrap();
    let chunk = format!("1000\r\n{}\r\n", "a".repeat(0x1000));
    for _ in 0..50 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 413");
}

#[test]
fn nonsense_is_rejected_and_the_server_lives_on() {
    let (server, _gone) = start(Limits { loopback_hosts_only: true, ..Limits::default() }, None);
    let long_head =
        format!("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    let many = format!("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: a\r\n".repeat(100));
    let deep = post(&format!(r#"{{"model": "m", "messages": {}"#, "[".repeat(200_000)));
    let deep_tool =
        post(&body("a", &format!(r#", "metadata": {}{}"#, "[".repeat(90_000), "]".repeat(90_000))));
    let form = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\
                 Content-Length: 2\r\n\r\n{}"
        .to_vec();
    let rebound = b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_vec();
    let bytes: Vec<u8> = (0..5000u32).map(|index| (index * 7 % 251) as u8).collect();
    for (request, expected) in [
        (long_head.into_bytes(), Some("431")),
        (many.into_bytes(), Some("431")),
        (deep, Some("400")),
        (deep_tool, None),
        (form, Some("415")),
        (rebound, Some("403")),
        (bytes, Some("400")),
        (b"\x16\x03\x01\x02\x00\x01\x00".to_vec(), None),
    ] {
        let mut stream = connect(&server);
        // The server may close before it has read everything.
        let _ = stream.write_all(&request);
        let mut first = [0; 12];
        if let Some(expected) = expected {
            stream.read_exact(&mut first).unwrap();
            assert_eq!(std::str::from_utf8(&first).unwrap(), format!("HTTP/1.1 {expected}"));
        }
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:80", "LOCALHOST"] {
        let mut stream = connect(&server);
        write!(stream, "GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        assert!(rest(&mut stream).starts_with("HTTP/1.1 200"), "{host}");
    }
}

#[test]
fn a_hundred_connections_are_answered_and_more_wait_for_room() {
    let (server, gone) = start(Limits { connections: 100, ..Limits::default() }, None);
    let streaming = post(&body("stream", r#", "stream": true"#));
    let mut open: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(&streaming).unwrap();
            stream
        })
        .collect();
    for stream in &mut open {
        stream.read_exact(&mut [0; 2000]).unwrap();
    }
    // One more is answered after one of them has disconnected.
    let mut last = connect(&server);
    last.write_all(&post(&body("hello", ""))).unwrap();
    last.set_read_timeout(Some(SHORT)).unwrap();
    assert!(last.read(&mut [0; 1]).is_err(), "there is no room yet");
    last.set_read_timeout(Some(LONG)).unwrap();
    open.pop();
    let mut first = [0; 12];
    last.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    drop(open);
    for _ in 0..100 {
        gone.recv_timeout(LONG).unwrap();
    }
}

#[test]
fn a_stop_waits_for_requests_in_work_as_long_as_it_may() {
    let (server, gone) = start(Limits::default(), None);
    let mut stream = connect(&server);
    stream.write_all(&post(&body("stream", r#", "stream": true"#))).unwrap();
    stream.read_exact(&mut [0; 2000]).unwrap();
    let mut idle = connect(&server);
    let address = server.address();
    let begun = Instant::now();
    let stop = std::thread::spawn(move || server.stop(SHORT));
    rest(&mut idle);
    assert!(begun.elapsed() < Duration::from_secs(10), "idle connections are closed at once");
    stop.join().unwrap();
    assert!(begun.elapsed() >= SHORT, "the stream had its time");
    gone.recv_timeout(LONG).unwrap();
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}
