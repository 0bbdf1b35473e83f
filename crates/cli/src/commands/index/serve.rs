use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use turnwise_retrieval::Retriever;
use turnwise_retrieval_service::{RetrievalConfig, Server, ServerOptions};

use crate::ui::{interruptions, print};

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Index folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    address: String,
    /// Allow an address that is reachable from other machines. Anyone who can connect can read the
    /// collection.
    #[arg(long)]
    allow_remote: bool,
    /// Number of passages returned per query, unless the request sets one.
    #[arg(short = 'k', long, value_name = "N", default_value_t = 3)]
    top_k: usize,
    /// Maximum number of connections; further clients get status 503.
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().connections)]
    connections: usize,
    #[command(flatten)]
    search: super::SearchArgs,
    /// Maximum number of queries whose results are cached.
    #[arg(long, value_name = "N", default_value_t = RetrievalConfig::default().cache)]
    cache: usize,
}

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let stop = interruptions()?;
    let retriever = args.search.open(&args.folder, args.cache)?;
    let options = ServerOptions {
        top_k: args.top_k,
        connections: args.connections,
        allow_remote: args.allow_remote,
        ..ServerOptions::default()
    };
    let server = Server::bind(&args.address, options)?;
    print(&format!(
        "Serving {} at http://{}/retrieve (Ctrl-C ends it).",
        args.folder.display(),
        server.address()
    ));
    let stopper = server.stopper();
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        stopper.stop();
    });
    server.run(&(Arc::clone(&retriever) as Arc<dyn Retriever>))?;
    let counts = retriever.counts();
    print(&format!(
        "{} queries, {:.1} % of them from the cache",
        counts.hits + counts.misses,
        100.0 * counts.hit_rate()
    ));
    Ok(ExitCode::SUCCESS)
}
