//! As much of HTTP/1.1 as a page with forms needs: one request a connection, bodies of known length.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest head and longest body.
const LIMIT: u64 = 64 << 10;

/// Time for a whole request to arrive, and for a whole answer to be taken.
const REQUEST_TIME: Duration = Duration::from_secs(10);
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// A request.
#[derive(Debug)]
pub(in crate::commands) struct Request {
    /// `GET` or `POST`.
    pub(in crate::commands) method: String,
    /// The path without its query.
    pub(in crate::commands) path: String,
    /// The host that the client asked for; empty if it named none.
    pub(in crate::commands) host: String,
    /// The site of the page that made a browser send this, as `http://host:port`; a client that is no browser names none.
    origin: Option<String>,
    /// The form that was sent.
    form: String,
}

/// An answer.
#[derive(Debug)]
pub(in crate::commands) struct Reply {
    status: u16,
    location: Option<String>,
    body: String,
}

impl Request {
    /// Reads a request; what is wrong with it comes back as the answer.
    pub(in crate::commands) fn read(stream: &TcpStream) -> Result<Self, Reply> {
        Self::parse(BufReader::new(Timed { stream, end: Instant::now() + REQUEST_TIME }))
    }

    /// False if a page of another site made the browser send this.
    pub(in crate::commands) fn is_of_this_site(&self) -> bool {
        self.origin.as_ref().is_none_or(|origin| {
            let site = origin.split_once("://").map(|(_, site)| site);
            site.is_some_and(|site| site.eq_ignore_ascii_case(&self.host))
        })
    }

    fn parse(reader: impl BufRead) -> Result<Self, Reply> {
        let refuse = |status: u16, text: &str| Reply::page(status, super::html::message(text));
        let mut reader = reader.take(LIMIT);
        let mut line = || -> Result<String, Reply> {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(_) if line.ends_with('\n') => Ok(line.trim_end().to_owned()),
                _ => Err(refuse(400, "This is no whole request.")),
            }
        };
        let first = line()?;
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(refuse(400, "This is no request."));
        };
        let (mut length, mut host, mut origin) = (0, String::new(), None);
        loop {
            let header = line()?;
            if header.is_empty() {
                break;
            }
            let Some((name, value)) = header.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| refuse(400, "The length is no number."))?;
            } else if name.eq_ignore_ascii_case("host") {
                value.trim().clone_into(&mut host);
            } else if name.eq_ignore_ascii_case("origin") {
                origin = Some(value.trim().to_owned());
            }
        }
        if length > LIMIT {
            return Err(refuse(413, "This is too much."));
        }
        let mut body = Vec::new();
        reader.set_limit(length);
        if reader.read_to_end(&mut body).map_or(true, |read| read as u64 != length) {
            return Err(refuse(400, "This is no whole request."));
        }
        Ok(Self {
            method: method.to_owned(),
            path: target.split('?').next().unwrap_or_default().to_owned(),
            host,
            origin,
            form: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    /// Returns a field of the form.
    pub(in crate::commands) fn field(&self, name: &str) -> Option<String> {
        let mut fields = self.form.split('&').filter_map(|field| field.split_once('='));
        fields.find(|(known, _)| *known == name).map(|(_, value)| decode(value))
    }
}

/// A connection that fails when its time is over: one that is slow, too, ends.
struct Timed<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Timed<'_> {
    /// The time that is left.
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

/// The text of a form's value: `+` is a blank, `%41` is `A`.
fn decode(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let hex = |byte: u8| char::from(byte).to_digit(16);
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push((hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0)) as u8);
                rest = after;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Reply {
    /// Returns a page.
    pub(in crate::commands) fn page(status: u16, body: String) -> Self {
        Self { status, location: None, body }
    }

    /// Go and look there.
    pub(in crate::commands) fn see(location: String) -> Self {
        Self { status: 303, location: Some(location), body: String::new() }
    }

    /// Writes the answer.
    pub(in crate::commands) fn send(&self, stream: &TcpStream) -> io::Result<()> {
        let mut stream = Timed { stream, end: Instant::now() + ANSWER_TIME };
        let reason = match self.status {
            200 => "OK",
            303 => "See Other",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            413 => "Content Too Large",
            500 => "Internal Server Error",
            503 => "Service Unavailable",
            _ => "Bad Request",
        };
        let location = self.location.as_ref().map_or(String::new(), |path| format!("Location: {path}\r\n"));
        let head = format!(
            "HTTP/1.1 {} {reason}\r\n{location}Content-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\
             Connection: close\r\n\r\n",
            self.status,
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
        let text = "POST /visit/3?x=y HTTP/1.1\r\nHost: x\r\nCONTENT-length: 41\r\n\r\nsearch=red+mug%26+caf%C3%A9+100%25%2&b=cd&";
        let request = Request::parse(text.as_bytes()).unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/visit/3"));
        assert_eq!(request.host, "x");
        assert_eq!(request.field("search").as_deref(), Some("red mug& caf\u{e9} 100%%2"));
        assert_eq!((request.field("b").as_deref(), request.field("c")), (Some("cd"), None));
    }

    #[test]
    fn the_site_of_a_form_is_known() {
        let is_own = |origin: &str| {
            let text = format!("POST / HTTP/1.1\r\nHost: localhost:3000\r\n{origin}\r\n");
            Request::parse(text.as_bytes()).unwrap().is_of_this_site()
        };
        for own in ["", "Origin: http://localhost:3000\r\n", "ORIGIN: http://LOCALHOST:3000\r\n"] {
            assert!(is_own(own), "{own}");
        }
        for other in ["http://example.org", "http://localhost", "http://localhost:3001", "null", ""] {
            assert!(!is_own(&format!("Origin: {other}\r\n")), "{other}");
        }
    }

    #[test]
    fn broken_requests_are_refused() {
        for (text, status) in [
            ("", 400),
            ("GET\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: x", 400),
            ("POST / HTTP/1.1\r\nContent-Length: ten\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nshort", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        ] {
            assert_eq!(Request::parse(text.as_bytes()).unwrap_err().status, status, "{text:?}");
        }
    }
}
