//! Pages for a browser, served from this machine: what `play webshop --web` and `view` share.
//!
//! | file | subject |
//! |---|---|
//! | `http` | as much of HTTP/1.1 as a page with forms needs |
//! | `html` | a document, and text made harmless in it |

pub(super) mod html;
pub(super) mod http;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::Context as _;

use self::http::{Reply, Request};

/// Returns a listener at the address that an option names; port 0 takes a free one.
///
/// # Errors
/// Returns the option, its value and what is wrong with it.
pub(super) fn listen(option: &str, address: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let wrong = || format!("{option} {address}");
    let listener = TcpListener::bind(address).map_err(|error| {
        let taken = error.kind() == std::io::ErrorKind::AddrInUse;
        let advice =
            if taken { "; another one may be open: name another port, or 0 for a free one" } else { "" };
        anyhow::anyhow!("{}: {error}{advice}", wrong())
    })?;
    let address = listener.local_addr().with_context(wrong)?;
    Ok((listener, address))
}

/// Answers requests until the program is ended, each on a thread of its own.
///
/// On a loopback listener, requests for other hosts are rejected; otherwise a web page whose name
/// resolves here could read the answers.
pub(super) fn serve(listener: &TcpListener, reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
    let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let reply = Arc::new(reply);
    for stream in listener.incoming() {
        // A visitor who is gone already is no reason to end.
        let Ok(stream) = stream else { continue };
        let reply = Arc::clone(&reply);
        std::thread::spawn(move || answer(&stream, local, &*reply));
    }
}

fn answer(stream: &TcpStream, local: bool, reply: &impl Fn(&Request) -> Reply) {
    let reply = match Request::read(stream) {
        Ok(request) if local && !names_this_machine(&request.host) => {
            Reply::page(403, html::message("This server answers for localhost alone."))
        }
        Ok(request) => reply(&request),
        Err(reply) => reply,
    };
    // There is no client to report to.
    let _ = reply.send(stream);
}

/// Returns true if the host of a request, with or without a port, is a name of this machine. A
/// client that is not a browser may send none.
fn names_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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
