//! Training and evaluation for programs that show progress themselves, e.g. the Python package.
//! Functions take the arguments of the command line.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Command};
use turnwise_eval::{Agent, EvalError, Evaluation, PlaySettings, evaluate_with};
use turnwise_train::record::panels::Panels;
use turnwise_train::rollout::EnvRunner;
use turnwise_train::{EvaluationPoint, Observer, Registries, Run, RunEnd};

use crate::commands::{eval, train};
use crate::registries;
use crate::{memory, ui};

/// Evaluation progress: split, then the numbers of finished tasks, all tasks and solved tasks.
pub type EvaluationProgress<'a> = dyn FnMut(&str, usize, usize, usize) + 'a;

/// Opens a run like `turnwise train ARGUMENTS`, calls `opened`, and trains until the run ends or
/// `stop` is set.
///
/// # Errors
/// Fails on invalid arguments, or if `turnwise train` would fail.
pub fn train(
    registries: Registries,
    arguments: &[OsString],
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    opened: &mut dyn FnMut(&Run),
) -> anyhow::Result<RunEnd> {
    registries::install(registries, Vec::new());
    let args: train::TrainArgs = parsed("train", arguments)?;
    let mut run = train::open(args, observer)?;
    memory::keep_freed_memory(&run);
    opened(&run);
    Ok(run.train(observer, stop)?)
}

/// Formats an error and its causes as the commands do.
pub fn described(error: &anyhow::Error) -> String {
    ui::described(error)
}

/// Evaluates like `turnwise eval ARGUMENTS`; returns a result per split.
///
/// # Errors
/// Fails on invalid arguments, or if `turnwise eval` would fail.
pub fn evaluate(
    registries: Registries,
    arguments: &[OsString],
    stop: &AtomicBool,
    note: &mut dyn FnMut(String),
    progress: &mut EvaluationProgress<'_>,
) -> anyhow::Result<Vec<Evaluation>> {
    registries::install(registries, Vec::new());
    eval::evaluated(parsed("eval", arguments)?, stop, note, progress, &mut |_| {})
}

/// Evaluates a run's current policy on its task panels and writes `eval/<position>.json`. Breaks
/// without writing if `stop` is set.
///
/// # Errors
/// Fails like [`Observer::evaluate`].
pub fn evaluate_point(
    point: &mut EvaluationPoint<'_>,
    stop: &AtomicBool,
    progress: &mut EvaluationProgress<'_>,
    done: &mut dyn FnMut(&str, &Evaluation),
) -> Result<ControlFlow<(), Vec<Evaluation>>, String> {
    let panels: Panels = point.run.read_json("panel.json").map_err(|error| error.to_string())?;
    let label = point.position.label();
    let (config, world) = (point.config, point.world.clone());
    let runner = EnvRunner::new(config, point.registries, world, Arc::clone(point.tokenizer), point.vision)
        .map_err(|error| error.to_string())?;
    let mut results = Vec::new();
    for panel in panels.evaluation.values() {
        let settings = PlaySettings {
            config,
            runner: &runner,
            temperature: config.eval.temperature,
            agent: Agent::Plain,
            trials: 1,
            stop,
        };
        let outcome = evaluate_with(&settings, panel, point.samplers, |tasks| {
            let (finished, solved) =
                (tasks.finished.load(Ordering::Relaxed), tasks.solved.load(Ordering::Relaxed));
            progress(&panel.split, finished, panel.tasks.len(), solved);
        });
        match outcome {
            Ok((result, _)) => {
                done(&label, &result);
                results.push(result);
            }
            Err(EvalError::Interrupted) => return Ok(ControlFlow::Break(())),
            Err(error) => return Err(error.to_string()),
        }
    }
    point.run.write_json(&format!("eval/{label}.json"), &results).map_err(|error| error.to_string())?;
    Ok(ControlFlow::Continue(results))
}

/// Invalid arguments of a command.
#[derive(Debug)]
pub struct ArgumentError(String);

impl std::fmt::Display for ArgumentError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for ArgumentError {}

impl From<clap::Error> for ArgumentError {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let reason = text.lines().next().unwrap_or_default();
        Self(reason.strip_prefix("error: ").unwrap_or(reason).to_owned())
    }
}

fn parsed<A: Args>(command: &'static str, arguments: &[OsString]) -> Result<A, ArgumentError> {
    let words = std::iter::once(OsString::from(command)).chain(arguments.iter().cloned());
    let command = A::augment_args(Command::new(command).disable_help_flag(true));
    Ok(A::from_arg_matches(&command.try_get_matches_from(words)?)?)
}
