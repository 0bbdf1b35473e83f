//! Servers with scripted answers, and a retriever without an index.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnwise_retrieval::{Hit, Passage, RetrievalError, Retriever};
use turnwise_retrieval_service::HttpOptions;

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Answer(u16, String),
    /// Answers with `Retry-After` of this many seconds.
    Later(u16, u32),
    /// Sends fewer bytes than announced.
    Truncated(String),
    /// Sends nothing until the client disconnects.
    Stall,
    /// Sends the head and then a byte every 50 ms.
    Drip,
    /// Closes the connection without an answer.
    Die,
    /// Sends something other than HTTP.
    Noise,
}

/// A server that follows a list of acts, one per request, and repeats the last one.
pub(crate) struct Double {
    pub(crate) url: String,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl Double {
    pub(crate) fn new(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/retrieve", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, acts) = (Arc::clone(&seen), acts.clone());
                std::thread::spawn(move || one(stream.unwrap(), &seen, &acts));
            }
        });
        Self { url, requests }
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn one(mut stream: TcpStream, seen: &Mutex<Vec<String>>, acts: &[Act]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let act = {
        let mut seen = seen.lock().unwrap();
        seen.push(String::from_utf8(body).unwrap());
        acts[(seen.len() - 1).min(acts.len() - 1)].clone()
    };
    let head = |status: u16, length: usize, more: &str| {
        format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{more}connection: close\r\n\r\n"
        )
    };
    let mut send = |text: String| drop(stream.write_all(text.as_bytes()));
    match act {
        Act::Answer(status, body) => send(head(status, body.len(), "") + &body),
        Act::Later(status, seconds) => send(head(status, 2, &format!("retry-after: {seconds}\r\n")) + "{}"),
        Act::Truncated(body) => send(head(200, body.len() + 10, "") + &body),
        Act::Stall => std::thread::sleep(Duration::from_secs(20)),
        Act::Drip => {
            send(head(200, 1000, ""));
            for _ in 0..200 {
                std::thread::sleep(Duration::from_millis(50));
                send(" ".to_owned());
            }
        }
        Act::Die => {}
        Act::Noise => send("I am no server\r\n\r\n".to_owned()),
    }
}

pub(crate) fn good() -> Act {
    Act::Answer(200, r#"{"result":[[{"document":{"id":"1","contents":"\"T\"\nx"},"score":2.0}]]}"#.to_owned())
}

pub(crate) fn quick() -> HttpOptions {
    HttpOptions {
        timeout: Duration::from_millis(400),
        retries: 2,
        backoff: Duration::from_millis(10),
        backoff_max: Duration::from_millis(40),
        ..HttpOptions::default()
    }
}

/// Returns the query itself `top_k` times; "stall", "fail" and "panic" do what they say.
pub(crate) struct Parrot;

impl Retriever for Parrot {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        let hit = |query: &str, rank: usize| Hit {
            passage: Arc::new(Passage { id: rank.to_string(), contents: format!("\"{query}\"\ntext") }),
            score: 1.0 / (rank + 1) as f32,
        };
        for query in queries {
            match *query {
                "stall" => std::thread::sleep(Duration::from_millis(300)),
                "fail" => return Err(RetrievalError::Index { reason: "no luck".into() }),
                "later" => {
                    return Err(RetrievalError::Timeout { server: "x".into(), seconds: "1".into() });
                }
                "panic" => panic!("as asked for"),
                _ => {}
            }
        }
        Ok(queries.iter().map(|query| (0..top_k).map(|rank| hit(query, rank)).collect()).collect())
    }
}
