mod beside;
mod explain;
mod group_page;
mod list_page;
mod messages;
mod order;
mod pictures;
mod query;
mod run_page;
mod search;
mod settings;
mod site;
mod source;
mod step;
mod step_page;
mod tokens;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;

pub(crate) use self::explain::of_config as method_of_config;
use self::group_page::Look;
use self::list_page::Runs;
use self::site::{Pages, STYLE, Site};
use self::source::{Method, Source};
use super::credit::{Reading, Switches};
use super::output::{check_ending, check_output_of, write_text};
use super::pages::html::document;
use super::{is_run, pages};
use crate::ui;

/// View trajectories in a browser: each turn, its advantage, and how it was computed.
///
/// Serves pages locally until Ctrl-C, or writes one step's page to a file (--output). A folder of
/// runs is shown as a list that updates during training. Explanations are those recorded by the run
/// (train.explain). Without them, advantages are recomputed with the run's settings and compared
/// with the recorded ones.
#[derive(Args)]
pub(crate) struct ViewArgs {
    /// A run directory, a folder of runs, a trajectory file, or a folder of trajectory files or
    /// Harbor trials. Files may be JSON lines (from a run, verl or verifiers, OpenAI messages,
    /// ShareGPT, or hand-written; may be .zst), ATIF, or Parquet (messages, TRL).
    path: PathBuf,
    /// Step to open in the browser [default: the run's page] or to write with --output [default:
    /// the last step].
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Show advantages computed with this preset instead of the recorded ones.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Also show advantages computed with this preset. Files written by `turnwise benchmark credit`
    /// are shown with true advantages; by default, grpo is compared with gigpo.
    #[arg(long, value_name = "NAME")]
    beside: Option<String>,
    #[command(flatten)]
    switches: Switches,
    #[command(flatten)]
    reading: Reading,
    /// Index of the group to write with --output; repeatable [default: all groups].
    #[arg(long, value_name = "INDEX", requires = "output")]
    group: Vec<usize>,
    /// Write a self-contained page (.html) instead of serving.
    #[arg(short, long, value_name = "FILE", alias = "out")]
    output: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7979", conflicts_with = "output")]
    address: String,
    /// Allow an address that is reachable from other machines. Anyone who can connect can read the
    /// trajectories and settings.
    #[arg(long, conflicts_with = "output")]
    allow_remote: bool,
}

pub(crate) fn run(args: ViewArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.output {
        check_output_of("--output", path, &args.path, "trajectories")?;
        check_ending("--output", path, "html")?;
    }
    if args.output.is_none() && !is_run(&args.path) {
        let runs = Runs::new(&args.path);
        if !runs.names().is_empty() && !source::has_dumps(&args.path) {
            if args.step.is_some() {
                bail!("--step: {} is a folder of runs; name one of them", args.path.display());
            }
            // Reject invalid options now, not on every page.
            args.methods()?;
            let (address, remote) = (args.address.clone(), args.allow_remote);
            let open = Box::new(move |path: &Path| args.open(path));
            return serve(Site::folder(runs, open), &address, remote, "");
        }
    }
    let source = args.open(&args.path)?;
    if let Some(number) = args.step
        && !source.steps().contains(&number)
    {
        bail!(
            "--step {number}: {} has no trajectories of it; {}",
            args.path.display(),
            steps_in_words(&source.steps())
        );
    }
    if let Some(path) = &args.output {
        return write(&source, &args, path);
    }
    if source.method().is_some()
        && let Some(first) = args.step.or_else(|| source.steps().last().copied())
    {
        source.step(first)?;
    }
    let first = args.step.map(|step| format!("step/{step}")).unwrap_or_default();
    serve(Site::One(Box::new(Pages::new(source))), &args.address, args.allow_remote, &first)
}

impl ViewArgs {
    fn methods(&self) -> anyhow::Result<[Option<Method>; 2]> {
        let method = match &self.preset {
            Some(preset) => Some(Method::new(preset, self.switches.config(preset)?, self.switches.seed)?),
            None => None,
        };
        let beside = self.beside.as_deref().map(|preset| self.named(preset)).transpose();
        Ok([method, beside.context("--beside")?])
    }

    fn named(&self, preset: &str) -> anyhow::Result<Method> {
        let config = super::credit::settings::config(preset, false, &[])?;
        Method::new(preset, config, self.switches.seed)
    }

    fn open(&self, path: &Path) -> anyhow::Result<Source> {
        let [method, beside] = self.methods()?;
        let mut source = Source::open(path, &self.reading, method, beside)?;
        if source.has_truth() {
            source.fill_methods(|preset| self.named(preset))?;
        }
        Ok(source)
    }
}

fn steps_in_words(steps: &[u64]) -> String {
    match steps {
        [] => "it has no steps yet".into(),
        [only] => format!("it has step {only}"),
        [first, .., last] => format!("it has {} steps from {first} to {last}", steps.len()),
    }
}

fn write(source: &Source, args: &ViewArgs, path: &Path) -> anyhow::Result<ExitCode> {
    let last = source.steps().last().copied();
    let number =
        args.step.or(last).with_context(|| format!("{}: has no trajectories", args.path.display()))?;
    let step = source.step(number)?;
    let count = step.groups.len();
    if let Some(wrong) = args.group.iter().find(|&&group| group >= count) {
        bail!("--group {wrong}: step {number} has groups 0 to {}", count.saturating_sub(1));
    }
    let chosen: Vec<usize> = if args.group.is_empty() { (0..count).collect() } else { args.group.clone() };
    let (tokens, pictures) = (source.tokens(), source.pictures());
    let look = Look { tokens: tokens.as_ref(), pictures: Some(&pictures), ..Look::default() };
    let mut body = step_page::head(source, &step);
    body.push_str(&step_page::metrics(source, number));
    for &group in &chosen {
        body.push_str(&group_page::group(&step, group, look));
    }
    body.push_str(&group_page::meanings(chosen.iter().flat_map(|&group| &step.groups[group])));
    let title = format!("{}, step {number}", source.title());
    write_text("--output", path, &document(&title, STYLE, &body))?;
    ui::print(&format!("{}\nwritten to {}", step.summary(), path.display()));
    Ok(ExitCode::SUCCESS)
}

fn serve(site: Site, at: &str, allow_remote: bool, first: &str) -> anyhow::Result<ExitCode> {
    let (listener, address) = pages::listen("--address", at)?;
    if !address.ip().is_loopback() && !allow_remote {
        bail!(
            "--address {at}: other machines could reach it and read the trajectories; allow that with --allow-remote, or use 127.0.0.1"
        );
    }
    ui::print(&format!("{} at http://{address}/{first} (Ctrl-C ends it).", site.title()));
    pages::serve(&listener, move |request| site.reply(request));
    Ok(ExitCode::SUCCESS)
}
