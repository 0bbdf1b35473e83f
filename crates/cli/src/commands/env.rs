//! `turnwise env`: which environments there are, worlds as files, recorded episodes against the engine.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use turnwise_core::TaskSet as _;
use turnwise_env::alfworld::generator::{GeneratorConfig, Size, write_games};
use turnwise_env::alfworld::replay::replay;
use turnwise_env::alfworld::{AlfworldSet, TaskType};
use turnwise_env::replay::Difference;

use crate::ui::print;

/// The first bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// List, generate and replay environments.
#[derive(Args)]
pub(crate) struct EnvArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Environments with their splits and how many tasks each has.
    List(ListArgs),
    /// Write a generated world as game files in the environment's official format.
    Generate(GenerateArgs),
    /// Replay recorded episodes and compare everything the engine says with the recording.
    Replay(ReplayArgs),
    /// Ask the shop's search engine queries of a file and write its answers.
    Search(super::search::SearchArgs),
}

/// The environments that run natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvironmentName {
    /// Household tasks in text.
    Alfworld,
    /// Buying what an instruction describes, in a shop of searchable pages.
    Webshop,
}

/// How large generated scenes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SizeName {
    /// 5-8 receptacles.
    #[default]
    Tiny,
    /// 8-12 receptacles.
    Small,
    /// 12-18 receptacles.
    Medium,
    /// 15-30 receptacles, like the official scenes.
    Full,
}

impl From<SizeName> for Size {
    fn from(name: SizeName) -> Self {
        match name {
            SizeName::Tiny => Self::Tiny,
            SizeName::Small => Self::Small,
            SizeName::Medium => Self::Medium,
            SizeName::Full => Self::Full,
        }
    }
}

#[derive(Args)]
struct ListArgs {
    /// Count the games of this folder, game file or `.tar.zst` archive instead of the generated world.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
}

#[derive(Args)]
struct GenerateArgs {
    /// Which environment.
    environment: EnvironmentName,
    /// Folder to write to; it must be new or empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The same seed gives the same files.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How large the scenes are.
    #[arg(long, value_enum, default_value_t)]
    size: SizeName,
    /// Number of training games.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().train)]
    train: usize,
    /// Number of games on training floor plans with other tasks and layouts.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().valid_seen)]
    valid_seen: usize,
    /// Number of games on floor plans that no training game has.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().valid_unseen)]
    valid_unseen: usize,
    /// Training floor plans per kind of room.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().floor_plans)]
    floor_plans: usize,
    /// Only these kinds of tasks, by their official names (repeat the option, or separate by commas).
    #[arg(long = "task-type", value_name = "NAME", value_delimiter = ',', value_parser = task_type)]
    task_types: Vec<TaskType>,
}

#[derive(Args)]
struct ReplayArgs {
    /// Which environment.
    environment: EnvironmentName,
    /// The recording: JSON lines, one episode a line, as they are or compressed with zstd.
    file: PathBuf,
    /// What it was recorded on. alfworld: a folder of games, a game file or a `.tar.zst` archive; webshop: the folder
    /// of the official files.
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// Write what the engine gave as a recording of its own (compressed if the name ends in `.zst`).
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
    /// Only for webshop: a query that the recording's search knew no answer to (repeat the option for more).
    #[arg(long, value_name = "QUERY")]
    unanswered: Vec<String>,
    /// How many differences to show in full.
    #[arg(long, value_name = "N", default_value_t = 10)]
    show: usize,
}

/// Runs the command. `replay` gives 1 if anything differs; every error is the caller's 2.
pub(crate) fn run(args: EnvArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List(args) => list(&args),
        Command::Generate(args) => generate(&args),
        Command::Replay(args) => replay_file(&args),
        Command::Search(args) => super::search::run(&args),
    }
}

fn task_type(name: &str) -> Result<TaskType, String> {
    TaskType::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let known: Vec<&str> = TaskType::ALL.iter().map(|kind| kind.name()).collect();
        format!("there are {}", known.join(", "))
    })
}

/// Loads games and tells, on standard error, what had to be left out.
pub(crate) fn load(path: &Path) -> anyhow::Result<AlfworldSet> {
    const SHOWN: usize = 3;
    let (set, broken) = AlfworldSet::load(path)?;
    let mut stderr = std::io::stderr();
    for error in broken.iter().take(SHOWN) {
        let _ = writeln!(stderr, "left out: {error}");
    }
    if broken.len() > SHOWN {
        let _ = writeln!(stderr, "left out: {} more broken files", broken.len() - SHOWN);
    }
    Ok(set)
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let mut out = String::from(
        "alfworld   household tasks in text: find things, clean, heat or cool them, put them away\n\
         webshop    buying what an instruction describes, in a shop of searchable pages (generated, or --data DIR)\n",
    );
    if let Some(path) = &args.data {
        let set = load(path)?;
        let _ = writeln!(out, "\n{}: {} games", path.display(), set.len());
        if set.unsolvable() > 0 {
            let _ = writeln!(
                out,
                "({} more are marked unsolvable in their files and left out)",
                set.unsolvable()
            );
        }
        out.push('\n');
        table(&mut out, &set)?;
    } else {
        let config = GeneratorConfig::default();
        let _ = write!(
            out,
            "\ngenerated, nothing to download (default numbers)\n  train {:>15}\n  valid_seen {:>10}\n  valid_unseen {:>8}\n\n\
             play        turnwise play alfworld\n\
             as files    turnwise env generate alfworld --out DIR\n\
             official    turnwise env list --data DIR\n",
            config.train, config.valid_seen, config.valid_unseen
        );
    }
    print(out.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Kinds of tasks down, splits across.
fn table(out: &mut String, set: &AlfworldSet) -> anyhow::Result<()> {
    let splits = set.splits();
    let width = TaskType::ALL.iter().map(|kind| kind.name().len()).max().unwrap_or_default();
    let columns: Vec<usize> = splits.iter().map(|split| split.len().max(7)).collect();
    let mut row = |name: &str, cells: &[String]| {
        let _ = write!(out, "{name:<width$}");
        for (cell, column) in cells.iter().zip(&columns) {
            let _ = write!(out, "  {cell:>column$}");
        }
        out.push('\n');
    };
    row("", &splits);
    for kind in TaskType::ALL {
        let mut cells = Vec::new();
        for split in &splits {
            cells.push(set.split(split)?.iter().filter(|game| game.task_type() == kind).count().to_string());
        }
        row(kind.name(), &cells);
    }
    let mut totals = Vec::new();
    for split in &splits {
        totals.push(set.split(split)?.len().to_string());
    }
    row("all", &totals);
    Ok(())
}

fn generate(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    if args.environment == EnvironmentName::Webshop {
        bail!("a generated shop is made in memory from its seed; there are no files to write");
    }
    let occupied = match std::fs::read_dir(&args.out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(|| format!("--out {}", args.out.display())),
    };
    if occupied {
        bail!(
            "--out {}: the folder is not empty, and two worlds in one folder would become one set of games; \
             name a new folder",
            args.out.display()
        );
    }
    let defaults = GeneratorConfig::default();
    let config = GeneratorConfig {
        seed: args.seed,
        size: args.size.into(),
        train: args.train,
        valid_seen: args.valid_seen,
        valid_unseen: args.valid_unseen,
        floor_plans: args.floor_plans,
        task_types: if args.task_types.is_empty() { defaults.task_types } else { args.task_types.clone() },
    };
    let start = Instant::now();
    let count = write_games(&config, &args.out)?;
    print(&format!(
        "{count} games in {:.1} s: {}\nplay one: turnwise play alfworld --data {}",
        start.elapsed().as_secs_f64(),
        args.out.display(),
        args.out.display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn replay_file(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    if args.environment == EnvironmentName::Webshop {
        if args.dump.is_some() {
            bail!("--dump: recordings of webshop cannot be written, only replayed");
        }
        return super::webshop::replay_file(&args.file, &args.data, &args.unanswered, args.show);
    }
    if !args.unanswered.is_empty() {
        bail!("--unanswered: alfworld has no search; leave the option out");
    }
    // The recording first: a wrong name should not cost the time to load four thousand games.
    let recording = open(&args.file)?;
    let set = load(&args.data)?;
    let name = args.file.display().to_string();
    let report = match &args.dump {
        None => replay(&name, recording, &set, None)?,
        Some(path) => {
            let file = File::create(path).with_context(|| format!("--dump {}", path.display()))?;
            let failed = || format!("--dump {}", path.display());
            if path.extension().is_some_and(|extension| extension == "zst") {
                let mut encoder = zstd::Encoder::new(file, 0).with_context(failed)?;
                let report = replay(&name, recording, &set, Some(&mut encoder))?;
                encoder.finish().with_context(failed)?;
                report
            } else {
                let mut file = BufWriter::new(file);
                let report = replay(&name, recording, &set, Some(&mut file))?;
                file.flush().with_context(failed)?;
                report
            }
        }
    };
    let counts = format!(
        "{} episodes, {} steps, {} differences",
        report.episodes,
        report.steps,
        report.differences.len()
    );
    print(&replay_summary(counts, "episode", &report.differences, args.show));
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Opens a recording, compressed or not: its first bytes tell.
pub(crate) fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let name = || path.display().to_string();
    let mut start = Vec::new();
    File::open(path)
        .with_context(name)?
        .take(ZSTD_MAGIC.len() as u64)
        .read_to_end(&mut start)
        .with_context(name)?;
    let file = File::open(path).with_context(name)?;
    if start == ZSTD_MAGIC {
        let mut decoder = zstd::Decoder::new(file).with_context(name)?;
        // Archives made with `--long` ask for more than the default window.
        decoder.window_log_max(31).with_context(name)?;
        return Ok(Box::new(BufReader::new(decoder)));
    }
    Ok(Box::new(BufReader::new(file)))
}

/// A replay's result in one line, and the first differences in full. `unit` is what an episode is called.
pub(crate) fn replay_summary(mut out: String, unit: &str, differences: &[Difference], show: usize) -> String {
    for difference in differences.iter().take(show) {
        let _ = write!(
            out,
            "\n\n{unit} {}, step {}, {} ({})\n  expected {:?}\n  found    {:?}",
            difference.episode,
            difference.step,
            difference.field,
            difference.task,
            difference.expected,
            difference.found
        );
    }
    if differences.len() > show {
        let _ = write!(out, "\n\nand {} more (--show N shows more)", differences.len() - show);
    }
    out
}
