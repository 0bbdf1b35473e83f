//! Measures the start of one sandbox, and of many in parallel.
//!
//! `cargo run --release -p turnwise-sandbox --example sandbox_speed -- [MEGABYTES]` allocates this
//! much memory first, since each start copies this process's page tables.

#![expect(clippy::print_stdout, reason = "an example prints its numbers")]

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use turnwise_sandbox::{Command, End, Files, Limits, Sandbox};

const STARTS: usize = 200;
const AT_ONCE: usize = 50;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let megabytes: usize = std::env::args().nth(1).map_or(Ok(0), |text| text.parse())?;
    let ballast = vec![1u8; megabytes << 20];
    let begun = Instant::now();
    let sandbox = Sandbox::new(&[])?;
    println!("prepared and probed in {:.1?}", begun.elapsed());
    let files: Files = (0..10).map(|number| (format!("src/file_{number}.py"), vec![b'#'; 2000])).collect();
    let command = Command::shell("exit 0");
    let mut times: Vec<Duration> = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let begun = Instant::now();
        let outcome = sandbox.run(&command, &files, &Limits::default())?;
        times.push(begun.elapsed());
        assert_eq!((outcome.end, outcome.files.len()), (End::Exited(0), files.len()));
    }
    times.sort();
    println!(
        "{STARTS} starts with 10 files, `sh` and end: median {:.1?}, 95 of 100 below {:.1?}",
        times[STARTS / 2],
        times[STARTS * 95 / 100]
    );
    let begun = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| sandbox.run(&command, &files, &Limits::default()).map(|outcome| outcome.end))
            })
            .collect();
        for thread in threads {
            let end = thread.join().map_err(|_| "a thread panicked")??;
            assert_eq!(end, End::Exited(0));
        }
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    })?;
    println!("{AT_ONCE} at once: {:.1?} in all", begun.elapsed());
    drop(ballast);
    Ok(())
}
