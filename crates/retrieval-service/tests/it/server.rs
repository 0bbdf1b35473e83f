//! The server with our client and with faulty clients.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use turnwise_retrieval::Retriever;
use turnwise_retrieval_service::{HttpOptions, HttpRetriever, RequestKey, Server, ServerOptions, Stopper};

use super::doubles::{Parrot, quick};

struct Running {
    address: SocketAddr,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(options: ServerOptions) -> Running {
    let server = Server::bind("127.0.0.1:0", options).unwrap();
    let (address, stopper) = (server.address(), server.stopper());
    let retriever: Arc<dyn Retriever> = Arc::new(Parrot);
    let thread = std::thread::spawn(move || server.run(&retriever).unwrap());
    Running { address, stopper, thread: Some(thread) }
}

fn short() -> ServerOptions {
    ServerOptions {
        timeout: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        largest_request: 10_000,
        most_queries: 10,
        most_passages: 20,
        ..ServerOptions::default()
    }
}

/// Returns the server's reply to some bytes, and whether it closed the connection afterwards.
fn raw(server: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn post(body: &str) -> Vec<u8> {
    post_with("Host: localhost", body)
}

fn post_with(headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /retrieve HTTP/1.1\r\n{headers}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[test]
fn pages_of_other_machines_are_refused() {
    let server = serve(short());
    let body = r#"{"queries": ["a"]}"#;
    for (headers, status) in [
        ("Host: 127.0.0.1:8000", "200"),
        ("Host: localhost\r\nOrigin: http://localhost:3000", "200"),
        // By DNS rebinding, a name of another machine leads to this one.
        ("Host: example.org:8000", "403"),
        ("Host: localhost\r\nOrigin: https://example.org", "403"),
        ("Host: localhost\r\nOrigin: http://localhost.example.org", "403"),
        ("Host: localhost\r\nOrigin: null", "403"),
        ("Host: localhost\r\nOrigin: http://", "403"),
    ] {
        let answer = raw(&server, &post_with(headers, body));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
    }
}

#[test]
fn our_client_and_our_server_agree() {
    let server = serve(short());
    let url = format!("http://{}", server.address);
    for request_key in [RequestKey::Queries, RequestKey::Query] {
        let client =
            HttpRetriever::new(std::slice::from_ref(&url), HttpOptions { request_key, ..quick() }).unwrap();
        let found = client.search(&["one", "zwei é"], 4).unwrap();
        assert_eq!(found, Parrot.search(&["one", "zwei é"], 4).unwrap());
    }
    let client = Arc::new(HttpRetriever::new(&[url], quick()).unwrap());
    std::thread::scope(|scope| {
        for number in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..20 {
                    let query = format!("{number} {round}");
                    assert_eq!(client.search(&[&query], 2).unwrap(), Parrot.search(&[&query], 2).unwrap());
                }
            });
        }
    });
    let error = client.search(&["fail"], 1).unwrap_err().to_string();
    assert!(error.contains("status 500") && error.contains("no luck"), "{error}");
    let error = client.search(&["panic"], 1).unwrap_err().to_string();
    assert!(error.contains("status 500") && error.contains("panic"), "{error}");
    let error = client.search(&["later"], 1).unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("status 503"), "{error}");
    assert_eq!(client.search(&["still here"], 1).unwrap().len(), 1);
}

#[test]
fn answers_have_the_originals_shape() {
    let server = serve(short());
    let body = |text: &str| -> serde_json::Value {
        serde_json::from_str(raw(&server, &post(text)).split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let document = serde_json::json!({"id": "0", "contents": "\"a\"\ntext"});
    assert_eq!(
        body(r#"{"queries": ["a"], "topk": 1, "return_scores": true}"#),
        serde_json::json!({"result": [[{"document": document, "score": 1.0}]]})
    );
    assert_eq!(body(r#"{"query": ["a"], "topk": 1}"#), serde_json::json!({"result": [[document]]}));
    assert_eq!(body(r#"{"queries": ["a"]}"#)["result"][0].as_array().unwrap().len(), 3);
}

#[test]
fn wrong_requests_are_answered_with_their_status() {
    let server = serve(short());
    let many = format!("{{\"queries\": {:?}}}", vec!["a"; 11]);
    let cases: [(Vec<u8>, &str, &str); 13] = [
        (post("{"), "422", "EOF"),
        (post("{\"texts\": []}"), "422", "`queries` (or `query`)"),
        (post(&many), "422", "at most 10 queries"),
        (post(r#"{"queries": ["a"], "topk": 21}"#), "422", "20 passages"),
        (b"GET /retrieve HTTP/1.0\r\n\r\n".to_vec(), "405", "Not Allowed"),
        (b"GET /docs HTTP/1.0\r\n\r\n".to_vec(), "404", "Not Found"),
        (b"GET /health HTTP/1.0\r\n\r\n".to_vec(), "200", "\"status\":\"ok\""),
        (b"POST /retrieve HTTP/1.1\r\n\r\n".to_vec(), "411", "Content-Length"),
        (b"POST /retrieve HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), "411", "Content-Length"),
        (b"POST /retrieve HTTP/1.1\r\nContent-Length: 10001\r\n\r\n".to_vec(), "413", "10000 bytes"),
        (b"POST /retrieve HTTP/1.1\r\nContent-Length: -5\r\n\r\n".to_vec(), "413", "10000 bytes"),
        (
            b"POST /retrieve HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx".to_vec(),
            "400",
            "more than once",
        ),
        ([b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 20_000]].concat(), "431", "too long"),
    ];
    for (bytes, status, expected) in cases {
        let answer = raw(&server, &bytes);
        let name = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
        assert!(answer.contains(expected), "{name}: {answer}");
    }
    let answer = raw(&server, b"nonsense\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn slow_and_silent_clients_hold_nothing_but_themselves() {
    let server = serve(short());
    // Incomplete head, incomplete body, nothing at all, and half a request before disconnecting.
    for (bytes, expected) in [
        (&b"POST /retrieve HTTP/1.1\r\nContent-"[..], "HTTP/1.1 408 "),
        (b"POST /retrieve HTTP/1.1\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 408 "),
        (b"", ""),
    ] {
        let start = Instant::now();
        let answer = raw(&server, bytes);
        assert!(answer.starts_with(expected) && answer.is_empty() == expected.is_empty(), "{answer}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(b"POST /retrieve HTTP/1.1\r\nContent-Length: 100\r\n\r\n{").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    drop(stream);
    let answer = raw(&server, &post(r#"{"queries": ["a"]}"#));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_connection_is_kept_and_requests_in_a_row_are_answered() {
    let server = serve(short());
    let body = r#"{"queries": ["a"], "topk": 1}"#;
    let request = format!("POST /retrieve HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let text = raw(&server, request.repeat(3).as_bytes());
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3, "{text}");
    assert_eq!(text.matches("connection: keep-alive").count(), 3, "{text}");
    let waiting = format!(
        "POST /retrieve HTTP/1.1\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(waiting.as_bytes()).unwrap();
    let mut begin = [0; 25];
    stream.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
}

#[test]
fn too_many_connections_are_told_to_come_again() {
    let server = serve(ServerOptions { connections: 1, ..short() });
    let mut first = TcpStream::connect(server.address).unwrap();
    let body = r#"{"queries": ["stall"]}"#;
    let request = format!("POST /retrieve HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    first.write_all(request.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let answer = raw(&server, &post(r#"{"queries": ["a"]}"#));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1"), "{answer}");
    let mut begin = [0; 15];
    first.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
}

#[test]
fn connections_that_are_turned_away_take_no_place_and_no_time() {
    let server = serve(ServerOptions { connections: 1, ..ServerOptions::default() });
    let body = r#"{"queries": ["a"]}"#;
    let kept = TcpStream::connect(server.address).unwrap();
    let start = Instant::now();
    // Silent connections: the first are rejected after a while, the last are closed at once.
    std::thread::sleep(Duration::from_millis(50));
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let mut ends = Vec::new();
    for mut stream in silent.iter().rev() {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        ends.push((text.starts_with("HTTP/1.1 503 "), start.elapsed()));
    }
    assert!(ends[..8].iter().all(|(told, _)| !told) && ends[8..].iter().all(|(told, _)| *told), "{ends:?}");
    assert!(ends.iter().all(|(_, after)| *after < Duration::from_secs(20)), "{ends:?}");
    // When the served connection ends, another is served, however many are being rejected.
    let _silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(50));
    drop(kept);
    std::thread::sleep(Duration::from_millis(100));
    let answer = raw(&server, &post(body));
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[test]
fn a_body_that_is_too_large_is_answered_though_it_is_sent() {
    let options = ServerOptions { largest_request: 4 << 20, ..ServerOptions::default() };
    let server = serve(options);
    for (head, length, status) in [
        ("Content-Length: 12582912", 12 << 20, "413"),
        ("Transfer-Encoding: chunked", 12 << 20, "411"),
        ("Content-Length: 0\r\nContent-Length: 0", 4 << 20, "400"),
    ] {
        let start = Instant::now();
        let mut bytes = format!("POST /retrieve HTTP/1.1\r\n{head}\r\n\r\n").into_bytes();
        bytes.resize(bytes.len() + length, b'x');
        let answer = raw(&server, &bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {answer}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    // A body more than four times too large is not read.
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(b"POST /retrieve HTTP/1.1\r\nContent-Length: 10000000000\r\n\r\n").unwrap();
    let some = vec![b'x'; 1 << 20];
    assert!((0..100).any(|_| stream.write_all(&some).is_err()));
}

#[test]
fn answers_are_bounded() {
    let options = ServerOptions { most_results: 20, largest_answer: 2_000, ..short() };
    let server = serve(options);
    let ask = |queries: usize, query: &str, top_k: usize| {
        raw(&server, &post(&serde_json::json!({"queries": vec![query; queries], "topk": top_k}).to_string()))
    };
    assert!(ask(4, "a", 5).starts_with("HTTP/1.1 200 OK"));
    let answer = ask(3, "a", 7);
    assert!(
        answer.starts_with("HTTP/1.1 422 ") && answer.contains("`queries` times `topk` asks for 21"),
        "{answer}"
    );
    let answer = ask(4, &"a".repeat(500), 1);
    assert!(answer.starts_with("HTTP/1.1 422 ") && answer.contains("more than 2000 bytes"), "{answer}");
    assert!(answer.contains("`topk`"), "{answer}");
}

#[test]
fn an_answer_has_one_time_for_all_of_it() {
    let options = ServerOptions { largest_request: 4 << 20, ..short() };
    let server = serve(options);
    // About 20 MB, fetched so slowly that it takes seconds, although no single write times out.
    let body = serde_json::json!({"queries": ["a".repeat(1 << 20)], "topk": 20}).to_string();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&post(&body)).unwrap();
    let (start, mut piece, mut read) = (Instant::now(), vec![0; 64 << 10], 0);
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        read += count;
        // Once the server has given up, the remaining bytes arrive without a pause.
        if start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(20));
        } else {
            break;
        }
    }
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(read > 0 && read + rest.len() < 20 << 20, "{read} and {} bytes", rest.len());
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_server_that_is_stopped_answers_what_is_under_way() {
    let options = ServerOptions { idle: Duration::from_mins(1), ..ServerOptions::default() };
    let server = Server::bind("127.0.0.1:0", options).unwrap();
    let (address, stopper) = (server.address(), server.stopper());
    let retriever: Arc<dyn Retriever> = Arc::new(Parrot);
    let thread = std::thread::spawn(move || server.run(&retriever).unwrap());
    let mut kept = TcpStream::connect(address).unwrap();
    kept.write_all(b"GET /health HTTP/1.1\r\n\r\n").unwrap();
    assert!(kept.read(&mut [0; 1024]).unwrap() > 0);
    let mut asking = TcpStream::connect(address).unwrap();
    asking.write_all(&post(r#"{"queries": ["stall"]}"#)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    stopper.stop();
    thread.join().unwrap();
    // The answer was sent before the server ended.
    asking.set_nonblocking(true).unwrap();
    let mut begin = [0; 15];
    asking.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn it_listens_on_this_machine_only_unless_told() {
    let refused = Server::bind("0.0.0.0:0", ServerOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("other machines could reach it"), "{refused}");
    let options = ServerOptions { allow_remote: true, ..ServerOptions::default() };
    assert!(Server::bind("0.0.0.0:0", options).is_ok());
    let wrong = Server::bind("nowhere", ServerOptions::default()).unwrap_err().to_string();
    assert!(wrong.contains("127.0.0.1:8000"), "{wrong}");
    let taken = Server::bind("127.0.0.1:0", ServerOptions::default()).unwrap();
    let again = Server::bind(&taken.address().to_string(), ServerOptions::default());
    assert!(again.is_err());
}
