//! A scripted, faulty service for the judge.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

#[derive(Clone)]
pub(crate) enum Reply {
    /// A chat completion with this content.
    Answer(String),
    Status(u16, String),
    /// Half of the announced body, then a closed connection.
    CutOff,
    /// A closed connection without a reply.
    Silence,
    /// Nothing until the client disconnects.
    Slow,
    /// A chat completion with this content, once the gate is open.
    Gated(String, Arc<(Mutex<bool>, Condvar)>),
}

pub(crate) fn answer(content: &str) -> Reply {
    Reply::Answer(content.into())
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// A server that follows a script and then repeats `last`.
pub(crate) struct Server {
    pub(crate) endpoint: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start(script: Vec<Reply>, last: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(VecDeque::from(script)));
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, script, last) = (Arc::clone(&log), Arc::clone(&script), last.clone());
                std::thread::spawn(move || {
                    let stream = stream.unwrap();
                    let Some(request) = receive(&stream) else { return };
                    log.lock().unwrap().push(request);
                    let reply = script.lock().unwrap().pop_front().unwrap_or(last);
                    // Clients that disconnect are part of the tests.
                    let _ = respond(stream, &reply);
                });
            }
        });
        Self { endpoint, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn receive(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { head, body: serde_json::from_slice(&body).unwrap() })
}

fn respond(mut stream: TcpStream, reply: &Reply) -> std::io::Result<()> {
    let (status, body) = match reply {
        Reply::Answer(content) => {
            (200, json!({"choices": [{"message": {"role": "assistant", "content": content}}]}).to_string())
        }
        Reply::Gated(content, gate) => {
            let (open, opened) = &**gate;
            drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            return respond(stream, &Reply::Answer(content.clone()));
        }
        Reply::Status(status, body) => (*status, body.clone()),
        Reply::CutOff => (200, "{\"choices\": [".to_owned() + &" ".repeat(400)),
        Reply::Silence => return Ok(()),
        Reply::Slow => {
            let mut rest = Vec::new();
            return stream.read_to_end(&mut rest).map(|_| ());
        }
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    let sent = if matches!(reply, Reply::CutOff) { body.len() / 2 } else { body.len() };
    stream.write_all(&body.as_bytes()[..sent])
}
