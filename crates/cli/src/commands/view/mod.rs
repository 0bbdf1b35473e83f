//! `turnwise view`: trajectories in a browser, every turn with its advantage and how it was computed.
//!
//! | file | subject |
//! |---|---|
//! | `source` | the run, file or folder behind the pages, and its steps |
//! | `step` | the trajectories of a step with their credit |
//! | `beside` | another method's advantages and the true ones beside those of a step |
//! | `explain` | explanations, as the run recorded them or computed again and held against what it recorded |
//! | `tokens` | the text of single tokens |
//! | `run_page` | a run: settings, curves, steps |
//! | `step_page` | a step: groups, their trajectories as rows of coloured turns |
//! | `group_page` | a group: every turn with what was seen, said and computed |
//! | `messages` | what was seen and said as messages: roles, calls of tools, results by id |
//! | `chart` | curves as SVG |

mod beside;
mod chart;
mod explain;
mod group_page;
mod messages;
mod run_page;
mod source;
mod step;
mod step_page;
mod tokens;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, bail};
use clap::Args;

use self::source::{Method, Source, Stamp};
use self::step::Step;
use self::tokens::TokenTexts;
use super::credit::{Reading, Switches, settings};
use super::output::{check_ending, check_output_of, write_text};
use super::pages;
use super::pages::html::{document, message};
use super::pages::http::{Reply, Request};
use crate::ui;

const STYLE: &str = include_str!("style.css");

/// View trajectories in a browser: each turn, its advantage, and how it was computed.
///
/// Serves pages on this machine until Ctrl-C, or writes a page of one step to a file (--output).
/// Explanations are those that the run recorded (train.explain). Without them, advantages are
/// recomputed with the run's settings and compared with the recorded ones.
#[derive(Args)]
pub(crate) struct ViewArgs {
    /// A run directory, a file of trajectories (JSON lines of a run, hand-written, of verl or
    /// verifiers, OpenAI messages, ShareGPT, also .zst; ATIF; or Parquet of messages or TRL), or a
    /// folder of such files or of Harbor's trials.
    path: PathBuf,
    /// Step to open [default: the run's page], or to write with --output [default: the last].
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Show the advantages of this preset instead of the recorded ones.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Show the advantages of this preset, too, on the same trajectories. A file of `turnwise
    /// benchmark credit` shows grpo beside gigpo unless given, and the true advantages.
    #[arg(long, value_name = "NAME")]
    beside: Option<String>,
    #[command(flatten)]
    switches: Switches,
    #[command(flatten)]
    reading: Reading,
    /// Index of a group to write with --output; repeatable [default: all groups].
    #[arg(long, value_name = "INDEX", requires = "output")]
    group: Vec<usize>,
    /// Write one page (.html) that needs no server.
    #[arg(short, long, value_name = "FILE", visible_alias = "out")]
    output: Option<PathBuf>,
    /// Address to serve on; port 0 selects a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7979", conflicts_with = "output")]
    address: String,
    /// Allow an address that other machines can reach. Anyone who reaches it can read the
    /// trajectories and settings.
    #[arg(long, conflicts_with = "output")]
    allow_remote: bool,
}

pub(crate) fn run(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.output {
        check_output_of("--output", path, &args.path, "trajectories")?;
        check_ending("--output", path, "html")?;
    }
    let method = match &args.preset {
        Some(preset) => Some(Method::new(preset, args.switches.config(preset)?, args.switches.seed)?),
        None => None,
    };
    let named = |preset: &str| Method::new(preset, settings::config(preset, false, &[])?, args.switches.seed);
    let beside = args.beside.as_deref().map(named).transpose().context("--beside")?;
    let mut source = Source::open(&args.path, &args.reading, method, beside)?;
    if source.has_truth() {
        source.fill_methods(named)?;
    }
    if let Some(number) = args.step
        && !source.steps().contains(&number)
    {
        bail!(
            "--step {number}: {} has no trajectories of it; {}",
            args.path.display(),
            steps_in_words(&source.steps())
        );
    }
    match &args.output {
        Some(path) => write(&source, args, path),
        None => serve(source, args),
    }
}

/// Returns the steps that there are, for a message.
fn steps_in_words(steps: &[u64]) -> String {
    match steps {
        [] => "there is no step yet".into(),
        [only] => format!("there is step {only}"),
        [first, .., last] => format!("there are {} steps from {first} to {last}", steps.len()),
    }
}

/// Writes one page of a step.
fn write(source: &Source, args: &ViewArgs, path: &std::path::Path) -> anyhow::Result<ExitCode> {
    let last = source.steps().last().copied();
    let number =
        args.step.or(last).with_context(|| format!("{}: has no trajectories", args.path.display()))?;
    let step = source.step(number)?;
    let count = step.groups.len();
    if let Some(wrong) = args.group.iter().find(|&&group| group >= count) {
        bail!("--group {wrong}: step {number} has groups 0 to {}", count.saturating_sub(1));
    }
    let chosen: Vec<usize> = if args.group.is_empty() { (0..count).collect() } else { args.group.clone() };
    let tokens = source.tokens();
    let mut body = step_page::head(source, &step);
    body.push_str(&step_page::metrics(source, number));
    for &group in &chosen {
        body.push_str(&group_page::group(&step, group, tokens.as_ref(), false));
    }
    body.push_str(&group_page::meanings(chosen.iter().flat_map(|&group| &step.groups[group])));
    let title = format!("{}, step {number}", source.title());
    write_text("--output", path, &document(&title, STYLE, &body))?;
    ui::print(&format!("{}\nwritten to {}", step.summary(), path.display()));
    Ok(ExitCode::SUCCESS)
}

fn serve(source: Source, args: &ViewArgs) -> anyhow::Result<ExitCode> {
    let (listener, address) = pages::listen("--address", &args.address)?;
    if !address.ip().is_loopback() && !args.allow_remote {
        bail!(
            "--address {}: other machines could reach it and read the trajectories; allow that with --allow-remote, or use 127.0.0.1",
            args.address
        );
    }
    // A method that does not fit the trajectories is refused here and not by every page.
    if source.method().is_some()
        && let Some(first) = args.step.or_else(|| source.steps().last().copied())
    {
        source.step(first)?;
    }
    let first = args.step.map(|step| format!("step/{step}")).unwrap_or_default();
    ui::print(&format!("{} at http://{address}/{first} (Ctrl-C ends it).", source.title()));
    let pages = Pages { source, last: Mutex::default(), tokens: OnceLock::new() };
    pages::serve(&listener, move |request| pages.reply(request));
    Ok(ExitCode::SUCCESS)
}

/// The pages of a source, with the step that was asked for last.
struct Pages {
    source: Source,
    last: Mutex<Option<LastStep>>,
    tokens: OnceLock<TokenTexts>,
}

/// A step as its file was.
struct LastStep {
    number: u64,
    stamp: Option<Stamp>,
    step: Arc<Step>,
}

impl Pages {
    fn reply(&self, request: &Request) -> Reply {
        if request.method != "GET" {
            return Reply::page(405, message("These pages are to be read."));
        }
        let path: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
        let page = match path.as_slice() {
            [] => self.first(),
            ["step", step] => step.parse().map_or(Ok(None), |step| self.step_page(step)),
            ["step", step, "group", group] => match (step.parse(), group.parse()) {
                (Ok(step), Ok(group)) => self.group_page(step, group, false),
                _ => Ok(None),
            },
            ["step", step, "group", group, "open"] => match (step.parse(), group.parse()) {
                (Ok(step), Ok(group)) => self.group_page(step, group, true),
                _ => Ok(None),
            },
            _ => Ok(None),
        };
        match page {
            Ok(Some(page)) => Reply::page(200, page),
            Ok(None) => Reply::page(404, message("There is no such page.")),
            Err(error) => Reply::page(500, message(&format!("{error:#}"))),
        }
    }

    /// Returns the run's page; a file of one step has that step for it.
    fn first(&self) -> anyhow::Result<Option<String>> {
        if let (Source::Files(_), [only]) = (&self.source, self.source.steps().as_slice()) {
            return self.step_page(*only);
        }
        let body = run_page::page(&self.source)?;
        Ok(Some(document(&self.source.title(), STYLE, &body)))
    }

    fn step_page(&self, number: u64) -> anyhow::Result<Option<String>> {
        let Some(step) = self.step(number)? else { return Ok(None) };
        let mut body = step_page::links(&self.source, number, None);
        body.push_str(&step_page::head(&self.source, &step));
        body.push_str(&step_page::metrics(&self.source, number));
        for group in 0..step.groups.len() {
            body.push_str(&step_page::group(&step, group, &format!("/step/{number}/group/{group}")));
        }
        Ok(Some(document(&format!("{}, step {number}", self.source.title()), STYLE, &body)))
    }

    /// `open` shows everything of every turn at once.
    fn group_page(&self, number: u64, group: usize, open: bool) -> anyhow::Result<Option<String>> {
        let Some(step) = self.step(number)? else { return Ok(None) };
        if group >= step.groups.len() {
            return Ok(None);
        }
        let mut body = step_page::links(&self.source, number, Some((group, step.groups.len())));
        body.push_str(&step_page::about(&self.source, &step));
        let (to, text) = if open { ("", "close all turns") } else { ("/open", "open all turns") };
        body.push_str(&format!("<p><a href=\"/step/{number}/group/{group}{to}\">{text}</a></p>"));
        body.push_str(&group_page::group(&step, group, self.tokens(), open));
        body.push_str(&group_page::meanings(step.groups[group].iter()));
        let title = format!("{}, step {number}, group {group}", self.source.title());
        Ok(Some(document(&title, STYLE, &body)))
    }

    /// Returns the texts of tokens; a run that has no checkpoint yet is retried.
    fn tokens(&self) -> Option<&TokenTexts> {
        if self.tokens.get().is_none() {
            self.tokens.set(self.source.tokens()?).ok();
        }
        self.tokens.get()
    }

    /// Returns the trajectories of a step; `None` if the source has no such step. A run that is resumed
    /// from an earlier step writes a step again, so that a step is kept only as long as its file is the
    /// same.
    fn step(&self, number: u64) -> anyhow::Result<Option<Arc<Step>>> {
        if !self.source.steps().contains(&number) {
            return Ok(None);
        }
        let stamp = self.source.stamp(number);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && (last.number, last.stamp) == (number, stamp)
        {
            return Ok(Some(Arc::clone(&last.step)));
        }
        let step = Arc::new(self.source.step(number)?);
        *last = Some(LastStep { number, stamp, step: Arc::clone(&step) });
        Ok(Some(step))
    }
}
