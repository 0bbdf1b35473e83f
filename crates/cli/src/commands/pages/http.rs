//! As much of HTTP/1.1 as a page with forms needs: one request a connection, bodies of known length.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Longest head and longest body.
const LIMIT: u64 = 64 << 10;

/// A request.
#[derive(Debug)]
pub(in crate::commands) struct Request {
    /// `GET` or `POST`.
    pub(in crate::commands) method: String,
    /// The path without its query.
    pub(in crate::commands) path: String,
    /// The host that the client asked for; empty if it named none.
    pub(in crate::commands) host: String,
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
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        Self::parse(BufReader::new(stream))
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
        let (mut length, mut host) = (0, String::new());
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
            form: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    /// Returns a field of the form.
    pub(in crate::commands) fn field(&self, name: &str) -> Option<String> {
        let mut fields = self.form.split('&').filter_map(|field| field.split_once('='));
        fields.find(|(known, _)| *known == name).map(|(_, value)| decode(value))
    }
}

/// Returns the text of a form's value: `+` is a blank, `%41` is `A`.
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
    pub(in crate::commands) fn send(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let reason = match self.status {
            200 => "OK",
            303 => "See Other",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            413 => "Content Too Large",
            500 => "Internal Server Error",
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
