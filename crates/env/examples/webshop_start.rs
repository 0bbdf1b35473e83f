//! Measures time and memory of a large shop's first start, which builds its files, and of later
//! ones.
//!
//! Run:
//! `cargo run --release -p turnwise-cli -p turnwise-env --example webshop_start -- DIR [PRODUCTS] [GOALS_PER_PRODUCT]`.
//! Run it twice: the first run builds the files in the folder, the second opens them. Memory is
//! measured on Linux only: the peak, and the final use without mapped files.

#![allow(clippy::print_stdout, reason = "an example tells what it measured")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use turnwise_env::panel::{Choice, Panel, PinnedSplit};
use turnwise_env::webshop::generator::GeneratorConfig;
use turnwise_env::webshop::{WebshopOptions, WebshopSet};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: webshop_start DIR [PRODUCTS] [GOALS]")?);
    let products: u32 = arguments.next().map_or(Ok(1_000_000), |number| number.parse())?;
    let goals: Option<usize> = arguments.next().map(|number| number.parse()).transpose()?;

    let start = Instant::now();
    let options = WebshopOptions { goals_per_product: goals, ..WebshopOptions::default() };
    let set = WebshopSet::generated_in(&folder, GeneratorConfig { seed: 0, products }, &options)?;
    println!("{products} products, {} goals: opened in {:.2} s{}", set.len(), seconds(start), memory());
    let start = Instant::now();
    let found = set.shop().search("red stoneware mug with a handle")?.len();
    println!("the first search: {found} products in {:.3} s{}", seconds(start), memory());
    // As a training run does: pin the training split, and panels that share no task with it.
    let start = Instant::now();
    let train = PinnedSplit::pin(&set, "train")?;
    println!("the {} tasks of train pinned in {:.2} s{}", train.len(), seconds(start), memory());
    for split in ["valid", "test"] {
        for count in [Some(256), None] {
            let start = Instant::now();
            let panel = Panel::pin(&set, split, Choice { count, ..Choice::default() })?;
            train.check_disjoint(&panel)?;
            println!("{} tasks of {split} pinned in {:.2} s{}", panel.tasks.len(), seconds(start), memory());
        }
    }
    Ok(())
}

fn seconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}

fn memory() -> String {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return String::new() };
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    let megabytes = |name: &str| of(name).map_or(f64::NAN, |kilobytes| kilobytes / 1024.0);
    format!(" (peak {:.0} MiB, of it not files now {:.0} MiB)", megabytes("VmHWM"), megabytes("RssAnon"))
}
