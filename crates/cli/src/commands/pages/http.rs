//! A minimal HTTP/1.1 server: one request per connection, without bodies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const LIMIT: u64 = 64 << 10;

/// Time limit for reading a request, and for sending a response.
const REQUEST_TIME: Duration = Duration::from_secs(10);
const ANSWER_TIME: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(in crate::commands) struct Request {
    pub(in crate::commands) method: String,
    pub(in crate::commands) path: String,
    /// Percent-encoded query string; empty if absent.
    pub(in crate::commands) query: String,
    /// `Host` header; empty if absent.
    pub(in crate::commands) host: String,
}

#[derive(Debug)]
pub(in crate::commands) struct Reply {
    status: u16,
    kind: &'static str,
    /// Redirect target, without control characters.
    location: Option<String>,
    body: String,
}

/// Content security policy: allows the viewer's script, requests to this server and embedded
/// images. Inline scripts are forbidden, so a trajectory's text never runs as code.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

impl Request {
    pub(in crate::commands) fn read(stream: &TcpStream) -> Result<Self, Reply> {
        Self::parse(BufReader::new(Timed { stream, end: Instant::now() + REQUEST_TIME }))
    }

    fn parse(reader: impl BufRead) -> Result<Self, Reply> {
        let refuse = |status: u16, text: &str| Reply::page(status, super::html::message(text));
        let mut reader = reader.take(LIMIT);
        let mut line = || -> Result<String, Reply> {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(_) if line.ends_with('\n') => Ok(line.trim_end().to_owned()),
                _ => Err(refuse(400, "The request is incomplete.")),
            }
        };
        let first = line()?;
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(refuse(400, "The request is not HTTP."));
        };
        let mut host = String::new();
        loop {
            let header = line()?;
            if header.is_empty() {
                break;
            }
            let Some((name, value)) = header.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("host") {
                value.trim().clone_into(&mut host);
            }
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ok(Self { method: method.to_owned(), path: path.to_owned(), query: query.to_owned(), host })
    }
}

/// A connection with one deadline, so that a slow client cannot hold it open.
struct Timed<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Reply {
    pub(in crate::commands) fn page(status: u16, body: String) -> Self {
        Self { status, kind: "text/html", location: None, body }
    }

    pub(in crate::commands) fn json(body: String) -> Self {
        Self { kind: "application/json", ..Self::page(200, body) }
    }

    pub(in crate::commands) fn script(body: &str) -> Self {
        Self { kind: "text/javascript", ..Self::page(200, body.to_owned()) }
    }

    /// Redirects to a path on this server, which must start with exactly one slash.
    pub(in crate::commands) fn redirect(path: &str) -> Self {
        let path: String = path.chars().filter(char::is_ascii_graphic).collect();
        Self { location: Some(path), ..Self::page(303, String::new()) }
    }

    pub(in crate::commands) fn send(&self, stream: &TcpStream) -> io::Result<()> {
        let mut stream = Timed { stream, end: Instant::now() + ANSWER_TIME };
        let reason = match self.status {
            200 => "OK",
            303 => "See Other",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            500 => "Internal Server Error",
            503 => "Service Unavailable",
            _ => "Bad Request",
        };
        let location = self.location.as_ref().map(|path| format!("Location: {path}\r\n")).unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\n{location}\
             Cache-Control: no-store\r\nContent-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(self.body.as_bytes())?;
        stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        let text = "GET /step/3?x=y HTTP/1.1\r\nHOST: x\r\nAccept: */*\r\n\r\n";
        let request = Request::parse(text.as_bytes()).unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/step/3"));
        assert_eq!(request.query, "x=y");
        assert_eq!(request.host, "x");
    }

    #[test]
    fn broken_requests_are_refused() {
        let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(LIMIT as usize));
        assert_eq!(Request::parse(long.as_bytes()).unwrap_err().status, 400);
        for (text, status) in [("", 400), ("GET\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: x", 400)] {
            assert_eq!(Request::parse(text.as_bytes()).unwrap_err().status, status, "{text:?}");
        }
    }
}
