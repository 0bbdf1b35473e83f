use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand, ValueEnum};
use toml::{Table, Value};
use turnwise_core::TaskSet;
use turnwise_env::alfworld::TaskType;
use turnwise_env::alfworld::generator::GeneratorConfig;
use turnwise_env::replay::Difference;
use turnwise_env::world::{OpenOptions, ReplayRequest};

use super::output::{check_output_of, write_output};
use super::seed;
use crate::ui::print;
use crate::worlds;

const SHOWN: usize = 3;

/// List, generate and replay environments.
#[derive(Args)]
pub(crate) struct EnvArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List environments with their splits and task counts.
    List(ListArgs),
    /// Write generated games to files in the environment's official format.
    Generate(GenerateArgs),
    /// Replay recorded episodes and compare the engine's output with the recording.
    Replay(ReplayArgs),
    /// Run queries from a file on WebShop's search engine and write the hits.
    Search(super::search::SearchArgs),
}

/// Scene size of generated games.
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

#[derive(Args)]
struct ListArgs {
    /// Show only this environment, with each split's tasks counted by kind.
    environment: Option<String>,
    /// Count tasks in these official files instead of generated ones (default environment:
    /// `alfworld`).
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
}

/// Settings of ALFWorld's generator, as (config key, option). Other environments' generators
/// support some of these settings.
const GENERATOR: [(&str, &str); 6] = [
    ("size", "--size"),
    ("train", "--train"),
    ("valid_seen", "--valid-seen"),
    ("valid_unseen", "--valid-unseen"),
    ("floor_plans", "--floor-plans"),
    ("task_types", "--task-type"),
];

/// The [`GENERATOR`] options given on the command line; defaults of omitted options apply only to
/// ALFWorld.
struct Given(Vec<(&'static str, &'static str)>);

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |(key, _): &(&str, &str)| matches.value_source(key) == Some(ValueSource::CommandLine);
        Ok(Self(GENERATOR.into_iter().filter(is_given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

#[derive(Args)]
struct GenerateArgs {
    // Must come first: clap removes each option from the matches when it parses it.
    #[command(flatten)]
    given: Given,
    /// Environment name.
    environment: String,
    /// Output folder; must be new or empty.
    #[arg(short = 'o', long = "output", value_name = "DIR", alias = "out")]
    out: PathBuf,
    /// Seed for the generator.
    #[arg(long, default_value_t = 0, value_parser = seed)]
    seed: u64,
    /// Scene size.
    #[arg(long, value_enum, default_value_t)]
    size: SizeName,
    /// Number of games to generate for training.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().train)]
    train: usize,
    /// Number of games with new tasks and layouts on the training floor plans.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().valid_seen)]
    valid_seen: usize,
    /// Number of games on floor plans that training does not use.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().valid_unseen)]
    valid_unseen: usize,
    /// Number of training floor plans per room type.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().floor_plans)]
    floor_plans: usize,
    /// Generate only these task types (official names; repeat the option or separate the names with
    /// commas).
    #[arg(long = "task-type", value_name = "NAME", value_delimiter = ',', value_parser = task_type)]
    task_types: Vec<TaskType>,
}

impl GenerateArgs {
    fn setting(&self, key: &str) -> anyhow::Result<Value> {
        let count = match key {
            "size" => {
                let size = self.size.to_possible_value().context("a size has a name")?;
                return Ok(size.get_name().into());
            }
            "train" => self.train,
            "valid_seen" => self.valid_seen,
            "valid_unseen" => self.valid_unseen,
            "floor_plans" => self.floor_plans,
            _ => {
                let names = self.task_types.iter().map(|kind| Value::from(kind.name()));
                return Ok(Value::Array(names.collect()));
            }
        };
        Ok(Value::try_from(count)?)
    }
}

#[derive(Args)]
struct ReplayArgs {
    /// Environment name.
    environment: String,
    /// Recording: JSON lines with one episode per line, plain or zstd-compressed; for search, a
    /// JSON list is also accepted.
    file: PathBuf,
    /// Data used for the recording. alfworld: a folder of games, a game file or a `.tar.zst`
    /// archive; webshop: the folder with the official files; bfcl: the `bfcl_eval` folder from the
    /// bfcl-eval package; tau2: a checkout of tau2-bench. Recordings for sokoban, ezpoints and
    /// search include their tasks. For ezpoints and search, a folder is optional; its files are
    /// compared too: the original environment's images for ezpoints, the collection
    /// (`passages.jsonl`, `retrievals.jsonl`) for search.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Write the engine's output to FILE as a recording (compressed if the name ends in `.zst`).
    #[arg(short = 'o', long = "output", value_name = "FILE", aliases = ["out", "dump"])]
    dump: Option<PathBuf>,
    /// WebShop only: a query for which the recording has no results; repeatable.
    #[arg(long, value_name = "QUERY")]
    unanswered: Vec<String>,
    /// Number of differences to show in full.
    #[arg(long, value_name = "N", default_value_t = 10)]
    show: usize,
}

/// Runs the command; `replay` exits with status 1 on a difference.
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

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let registry = worlds::registry();
    let mut out = String::new();
    for kind in registry.kinds() {
        let _ = writeln!(out, "{:<10} {}", kind.name(), kind.summary());
    }
    let first = registry.kinds().next().map(|kind| kind.name().to_owned());
    let named = args.environment.clone().or(first.filter(|_| args.data.is_some()));
    if let Some(name) = named {
        let kind = registry.kind(&name)?;
        let mut settings = Table::new();
        if let Some(path) = &args.data {
            settings.insert("data".into(), path.display().to_string().into());
        }
        let mut notes = Vec::new();
        let mut options = OpenOptions {
            splits: &[],
            max_turns: kind.eval_defaults().max_turns,
            note: &mut |note| notes.push(note),
        };
        let world = kind.open(&settings, &mut options)?;
        let of = args.data.as_ref().map_or_else(|| "generated".to_owned(), |path| path.display().to_string());
        let _ = writeln!(out, "\n{name}, {of}");
        notes.iter().take(SHOWN).for_each(|note| {
            let _ = writeln!(out, "({note})");
        });
        if notes.len() > SHOWN {
            let _ = writeln!(out, "({} more of the kind)", notes.len() - SHOWN);
        }
        out.push('\n');
        table(&mut out, world.task_set())?;
    } else {
        out.push_str(
            "\ntasks       turnwise env list KIND      generated, nothing to download; --data PATH counts official files\n\
             play        turnwise play KIND\n\
             as files    turnwise env generate alfworld --output DIR\n",
        );
        for kind in registry.kinds() {
            let _ =
                writeln!(out, "evaluation  {:<10} {}", kind.name(), kind.eval_defaults().splits.join(", "));
        }
    }
    print(out.trim_end());
    Ok(ExitCode::SUCCESS)
}

fn table(out: &mut String, set: &dyn TaskSet) -> anyhow::Result<()> {
    let splits = set.splits();
    let mut counts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (column, split) in splits.iter().enumerate() {
        for task in set.tasks(split)? {
            counts.entry(task.kind).or_insert_with(|| vec![0; splits.len()])[column] += 1;
        }
    }
    let width = counts.keys().map(String::len).max().unwrap_or_default().max(3);
    let columns: Vec<usize> = splits.iter().map(|split| split.len().max(7)).collect();
    let mut row = |name: &str, cells: &[String]| {
        let _ = write!(out, "{name:<width$}");
        for (cell, column) in cells.iter().zip(&columns) {
            let _ = write!(out, "  {cell:>column$}");
        }
        out.push('\n');
    };
    row("", &splits);
    let texts = |counts: &[usize]| counts.iter().map(usize::to_string).collect::<Vec<_>>();
    for (kind, counts) in &counts {
        row(kind, &texts(counts));
    }
    let totals: Vec<usize> =
        (0..splits.len()).map(|column| counts.values().map(|counts| counts[column]).sum()).collect();
    row("all", &texts(&totals));
    Ok(())
}

fn generate(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let registry = worlds::registry();
    let kind = registry.kind(&args.environment)?;
    let occupied = match std::fs::read_dir(&args.out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(|| format!("--output {}", args.out.display())),
    };
    if occupied {
        bail!(
            "--output {}: the folder is not empty, and two worlds in one folder would become one set of games; \
             name a new folder",
            args.out.display()
        );
    }
    let mut settings = kind.play_settings(args.seed, true)?;
    for &(key, option) in &args.given.0 {
        let generator = settings.get_mut("generator").and_then(Value::as_table_mut);
        let Some(setting) = generator.and_then(|generator| generator.get_mut(key)) else {
            bail!("{option}: the generator of {} has no `{key}`; leave the option out", args.environment);
        };
        *setting = args.setting(key)?;
    }
    let start = Instant::now();
    let count = kind.write_files(&settings, &args.out)?;
    let arguments: Vec<String> =
        kind.play_arguments(&args.out).iter().map(|argument| format!("'{argument}'")).collect();
    print(&format!(
        "{count} tasks in {:.1} s: {}\nplay one: turnwise play {} {}",
        start.elapsed().as_secs_f64(),
        args.out.display(),
        args.environment,
        arguments.join(" ")
    ));
    Ok(ExitCode::SUCCESS)
}

fn replay_file(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let registry = worlds::registry();
    let kind = registry.kind(&args.environment)?;
    if let Some(path) = &args.dump {
        check_output_of("--output", path, &args.file, "recording")?;
    }
    // A mistyped name must not cost the time to load four thousand games.
    let recording = open(&args.file)?;
    let name = args.file.display().to_string();
    let (data, unanswered) = (args.data.as_deref(), &args.unanswered);
    let report = match &args.dump {
        None => kind.replay(ReplayRequest { name: &name, recording, data, unanswered, dump: None })?,
        Some(path) => write_output("--output", path, |file| {
            if path.extension().is_some_and(|extension| extension == "zst") {
                let mut encoder = zstd::Encoder::new(file, 0)?;
                let dump: Option<&mut dyn Write> = Some(&mut encoder);
                let report = kind.replay(ReplayRequest { name: &name, recording, data, unanswered, dump })?;
                encoder.finish()?;
                Ok(report)
            } else {
                let mut buffered = BufWriter::new(file);
                let dump: Option<&mut dyn Write> = Some(&mut buffered);
                let report = kind.replay(ReplayRequest { name: &name, recording, data, unanswered, dump })?;
                buffered.flush()?;
                Ok(report)
            }
        })?,
    };
    print(&replay_summary(report.counts, report.unit, &report.differences, args.show));
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

pub(crate) fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    turnwise_files::open(path).with_context(|| path.display().to_string())
}

fn replay_summary(mut out: String, unit: &str, differences: &[Difference], show: usize) -> String {
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
