//! A minimal HTTP/1.1 server for requests with `Content-Length`. Requests are limited in size and
//! time, so that a client can block only its own connection.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::ServerOptions;

const LARGEST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path without the query string.
    pub(super) path: String,
    pub(super) body: Vec<u8>,
    /// `Host` and, in requests of web pages, `Origin`.
    pub(super) host: String,
    pub(super) origin: Option<String>,
    /// True if the connection stays open after the response.
    pub(super) keep: bool,
}

#[derive(Debug)]
pub(super) struct Reply {
    status: u16,
    body: Vec<u8>,
    /// Seconds before a retry.
    after: Option<u32>,
}

impl Reply {
    pub(super) fn bytes(body: Vec<u8>) -> Self {
        Self { status: 200, body, after: None }
    }

    pub(super) fn json(value: &Value) -> Self {
        Self::bytes(value.to_string().into_bytes())
    }

    pub(super) fn detail(status: u16, detail: &str) -> Self {
        Self { status, body: json!({ "detail": detail }).to_string().into_bytes(), after: None }
    }

    pub(super) fn after(mut self, seconds: u32) -> Self {
        self.after = Some(seconds);
        self
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

struct Head {
    method: String,
    path: String,
    host: String,
    origin: Option<String>,
    size: usize,
    length: usize,
    keep: bool,
    /// True if the client waits for `100 Continue`.
    expects: bool,
    bodyless: bool,
}

fn head(buffer: &[u8]) -> Result<Option<Head>, Reply> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let size = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(size)) if size <= LARGEST_HEAD => size,
        Ok(httparse::Status::Partial) if buffer.len() <= LARGEST_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Reply::detail(431, "the head of the request is too long"));
        }
        Err(httparse::Error::Version) => {
            return Err(Reply::detail(505, "only HTTP/1.0 and 1.1 are spoken"));
        }
        Err(error) => return Err(Reply::detail(400, &format!("no HTTP request: {error}"))),
    };
    let (method, target) = (parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default());
    let mut head = Head {
        method: method.to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        host: String::new(),
        origin: None,
        size,
        length: 0,
        // HTTP/1.1 keeps connections by default, 1.0 does not.
        keep: parsed.version == Some(1),
        expects: false,
        bodyless: method == "HEAD",
    };
    let mut lengths = 0;
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        let named = |name: &str| header.name.eq_ignore_ascii_case(name);
        if named("host") {
            value.clone_into(&mut head.host);
        } else if named("origin") {
            head.origin = Some(value.to_owned());
        } else if named("content-length") {
            lengths += 1;
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            head.length = value.parse().ok().filter(|_| digits).unwrap_or(usize::MAX);
        } else if named("transfer-encoding") {
            return Err(Reply::detail(411, "send the body with its length (Content-Length)"));
        } else if named("connection") {
            let has = |word: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word));
            head.keep = !has("close") && (head.keep || has("keep-alive"));
        } else if named("expect") {
            head.expects = value.eq_ignore_ascii_case("100-continue");
        }
    }
    if lengths > 1 {
        return Err(Reply::detail(400, "the request names its length more than once"));
    }
    if lengths == 0 && head.method == "POST" {
        return Err(Reply::detail(411, "send the body with its length (Content-Length)"));
    }
    Ok(Some(head))
}

/// Parses a request's head; for the fuzz targets in `fuzz/`.
pub(super) fn parse_head(bytes: &[u8]) {
    let _ = head(bytes);
}

pub(super) struct Connection {
    stream: TcpStream,
    /// Bytes received after the end of the last request that was read.
    buffer: Vec<u8>,
    largest: usize,
    timeout: Duration,
    idle: Duration,
    end: Option<Instant>,
    headless: bool,
    /// True if the body of a rejected request may still arrive.
    unread: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, options: &ServerOptions) -> Self {
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            buffer: Vec::new(),
            largest: options.largest_request,
            timeout: options.timeout,
            idle: options.idle,
            end: None,
            headless: false,
            unread: false,
        }
    }

    pub(super) fn until(mut self, end: Instant) -> Self {
        self.end = Some(end);
        self
    }

    fn after(&self, wait: Duration) -> Instant {
        let then = Instant::now() + wait;
        self.end.map_or(then, |end| then.min(end))
    }

    /// Waits for a request. Returns false if the client closed the connection or the idle timeout
    /// expired.
    pub(super) fn wait(&mut self) -> bool {
        !self.buffer.is_empty() || matches!(self.receive(self.after(self.idle)), Ok(1..))
    }

    /// Reads the request found by [`Connection::wait`]. If it is invalid, returns the response to
    /// send instead.
    pub(super) fn read(&mut self) -> Result<Request, Reply> {
        self.unread = true;
        let request = self.read_whole()?;
        self.unread = false;
        Ok(request)
    }

    fn read_whole(&mut self) -> Result<Request, Reply> {
        // The timeout starts with the first byte.
        let until = self.after(self.timeout);
        let head = loop {
            if let Some(head) = head(&self.buffer)? {
                break head;
            }
            match self.receive(until) {
                Ok(0) => return Err(Reply::detail(400, "the request breaks off")),
                Ok(_) => {}
                Err(error) => return Err(self.late(&error)),
            }
        };
        self.headless = head.bodyless;
        if head.length > self.largest {
            return Err(Reply::detail(413, &format!("a request has at most {} bytes", self.largest)));
        }
        if head.expects && self.buffer.len() < head.size + head.length {
            // If this fails, so will reading the body.
            let _ = self.write(b"HTTP/1.1 100 Continue\r\n\r\n", until);
        }
        while self.buffer.len() < head.size + head.length {
            match self.receive(until) {
                Ok(0) => return Err(Reply::detail(400, "the request breaks off")),
                Ok(_) => {}
                Err(error) => return Err(self.late(&error)),
            }
        }
        let rest = self.buffer.split_off(head.size + head.length);
        let body = self.buffer.split_off(head.size);
        self.buffer = rest;
        let Head { method, path, host, origin, keep, .. } = head;
        Ok(Request { method, path, body, host, origin, keep })
    }

    fn receive(&mut self, until: Instant) -> io::Result<usize> {
        let mut bytes = [0; 16 << 10];
        let count = self.read_some(&mut bytes, until)?;
        self.buffer.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn read_some(&mut self, bytes: &mut [u8], until: Instant) -> io::Result<usize> {
        loop {
            self.stream.set_read_timeout(Some(left(until)?))?;
            match self.stream.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Sends bytes before a deadline. The deadline is checked here, because the socket's timeout
    /// limits only single calls.
    fn write(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(left(until)?))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn send(&mut self, reply: &Reply, keep: bool) -> io::Result<()> {
        let after = reply.after.map_or_else(String::new, |seconds| format!("retry-after: {seconds}\r\n"));
        let head = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{after}connection: {}\r\n\r\n",
            reply.status,
            reason(reply.status),
            reply.body.len(),
            if keep { "keep-alive" } else { "close" }
        );
        let mut bytes = head.into_bytes();
        if !self.headless {
            bytes.extend_from_slice(&reply.body);
        }
        self.write(&bytes, self.after(self.timeout))?;
        if !keep {
            self.close();
        }
        Ok(())
    }

    /// Closes the connection after the client has read the response. Closing a connection with
    /// unread bytes would reset it, and the client might lose the response.
    fn close(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let (until, most) = if self.unread {
            // A client that is still sending reads the reply afterwards.
            (self.after(self.timeout), self.largest.saturating_mul(4).max(1 << 20))
        } else {
            (self.after(Duration::from_millis(200)), 1 << 20)
        };
        let (mut bytes, mut count) = ([0; 16 << 10], 0);
        while count < most {
            match self.read_some(&mut bytes, until) {
                Ok(read @ 1..) => count += read,
                _ => return,
            }
        }
    }

    fn late(&mut self, error: &io::Error) -> Reply {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                self.unread = false;
                Reply::detail(408, "the request did not arrive in time")
            }
            _ => Reply::detail(400, "the request breaks off"),
        }
    }
}

/// Returns true for a loopback name, and for an empty `Host`, which cannot come from a browser.
pub fn names_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns true if a request was caused by a web page of another machine. A loopback server would
/// otherwise answer any page that its user visits: by DNS rebinding the page could also read the
/// answers.
pub(super) fn is_foreign(request: &Request) -> bool {
    let is_own = |origin: &String| match origin.split_once("://") {
        Some((_, host)) => !host.is_empty() && names_this_machine(host),
        None => false,
    };
    !names_this_machine(&request.host) || !request.origin.as_ref().is_none_or(is_own)
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for own in ["localhost:7979", "LOCALHOST", "127.0.0.1:80", "[::1]:7979", "[::1]", ""] {
            assert!(names_this_machine(own), "{own}");
        }
        for other in [
            "example.org",
            "example.org:7979",
            "192.168.0.7:80",
            "localhost.example.org",
            "127.0.0.1.example.org",
        ] {
            assert!(!names_this_machine(other), "{other}");
        }
    }
}
