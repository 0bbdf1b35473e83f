pub(crate) mod html;
pub(super) mod http;
mod limit;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use turnwise_retrieval_service::names_this_machine;

use self::http::{Reply, Request};
use self::limit::Limit;

/// Maximum number of connections, each with its own thread; further connections wait in the
/// operating system.
const CONNECTIONS: usize = 64;

/// Maximum number of pages in memory; each may take many megabytes.
const PAGES: usize = 8;

/// Pause after failing to accept a connection or to start its thread; an immediate retry would fail
/// too.
const PAUSE: Duration = Duration::from_millis(50);

/// Binds a listener to an option's address; port 0 picks a free port.
///
/// # Errors
/// Fails if the address cannot be bound; the error names the option and its value.
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

/// Serves requests until the program exits.
///
/// On a loopback address, rejects requests whose `Host` is neither empty nor a loopback name.
/// Otherwise, a web page whose host name resolves to this machine could read responses (DNS
/// rebinding).
pub(super) fn serve(listener: &TcpListener, reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
    let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let reply = Arc::new(reply);
    let (connections, pages) = (Limit::new(CONNECTIONS), Limit::new(PAGES));
    loop {
        let connection = connections.take();
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
    let (_page, reply) = match request {
        Ok(request) => (Some(pages.take()), reply(&request)),
        Err(reply) => (None, reply),
    };
    let _ = reply.send(stream);
}

fn refusal(request: &Request, local: bool) -> Option<&'static str> {
    (local && !names_this_machine(&request.host)).then_some("This server answers for localhost alone.")
}
