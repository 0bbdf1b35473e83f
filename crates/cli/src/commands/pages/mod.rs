//! Pages for a browser, served from this machine.
//!
//! | file | subject |
//! |---|---|
//! | `http` | as much of HTTP/1.1 as pages need |
//! | `html` | a document, and text made harmless in it |
//! | `limit` | a limit of things that are done at once |

pub(crate) mod html;
pub(super) mod http;
mod limit;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use self::http::{Reply, Request};
use self::limit::Limit;

/// Connections at a time, each of which has a thread. Others wait in the system's queue.
const CONNECTIONS: usize = 64;

/// Pages at a time that are made and not yet sent: one of a large step has many megabytes.
const PAGES: usize = 8;

/// The wait after a connection that could not be accepted or had no thread: most likely the next one fails, too.
const PAUSE: Duration = Duration::from_millis(50);

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

/// Answers requests until the program is ended, each on its own thread, within limits of number and time: neither many
/// connections nor slow ones take more than a bounded share of the machine.
///
/// A listener that only this machine reaches refuses requests for other hosts: a page of the web whose name leads here could read the answers.
pub(super) fn serve(listener: &TcpListener, reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
    let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let reply = Arc::new(reply);
    let (connections, pages) = (Limit::new(CONNECTIONS), Limit::new(PAGES));
    loop {
        let connection = connections.take();
        // Clients that have left and too many open files must not end the server.
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        let (stream, reply, pages) = (Arc::new(stream), Arc::clone(&reply), Arc::clone(&pages));
        let visitor = Arc::clone(&stream);
        let answer = move || {
            answer(&visitor, local, &pages, &*reply);
            drop(connection);
        };
        if thread::Builder::new().name("page".to_owned()).spawn(answer).is_err() {
            let busy =
                Reply::page(503, html::message("This server has too much to do. Try again in a while."));
            let _ = busy.send(&stream);
            thread::sleep(PAUSE);
        }
    }
}

fn answer(stream: &TcpStream, local: bool, pages: &Arc<Limit>, reply: &impl Fn(&Request) -> Reply) {
    let request = Request::read(stream).and_then(|request| match refusal(&request, local) {
        Some(reason) => Err(Reply::page(403, html::message(reason))),
        None => Ok(request),
    });
    // Until it is sent, a page takes memory.
    let (_page, reply) = match request {
        Ok(request) => (Some(pages.take()), reply(&request)),
        Err(reply) => (None, reply),
    };
    // There is no client to report to.
    let _ = reply.send(stream);
}

/// Why a request is not answered.
fn refusal(request: &Request, local: bool) -> Option<&'static str> {
    (local && !names_this_machine(&request.host)).then_some("This server answers for localhost alone.")
}

/// Returns true if the host of a request, with or without a port, is a loopback name. Clients other than browsers may
/// send no host.
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
