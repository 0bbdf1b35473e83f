//! Measures calls per second of BFCL's APIs on one core:
//! `cargo run --release -p turnwise-env --example bfcl_speed -- path/to/bfcl_eval [base|miss_func|miss_param|long_context]`
//!
//! The time includes the setup of each task's APIs.

#![allow(clippy::print_stdout, reason = "a program")]

use std::time::{Duration, Instant};

use turnwise_env::bfcl::package::{BfclSet, Package};
use turnwise_env::bfcl::session::Session;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("name the folder `bfcl_eval` of the package bfcl-eval")?;
    let wanted = arguments.next();
    for set in BfclSet::ALL {
        if wanted.as_deref().is_some_and(|wanted| wanted != set.name()) {
            continue;
        }
        let package = Package::read(folder.as_ref(), &[set])?;
        let (mut calls, mut bytes, mut setup) = (0_u64, 0, Duration::ZERO);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            for task in &package.tasks {
                let begun = Instant::now();
                let mut session = Session::new(package.scenario(task), "speed");
                setup += begun.elapsed();
                for call in task.gold.iter().flatten() {
                    bytes += session.execute(call).len();
                    calls += 1;
                }
            }
        }
        let whole = start.elapsed();
        println!(
            "{}: {:.0} calls/s, {:.0} with set-up, {} bytes a result",
            set.name(),
            calls as f64 / whole.saturating_sub(setup).as_secs_f64(),
            calls as f64 / whole.as_secs_f64(),
            bytes as u64 / calls.max(1)
        );
    }
    Ok(())
}
