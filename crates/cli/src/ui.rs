//! Progress for the user while something long continues: bars in a terminal, lines elsewhere.

use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use turnwise_eval::{Agent, EvalError, Evaluation, PlaySettings, evaluate_with};
use turnwise_train::record::panels::Panels;
use turnwise_train::{EvaluationPoint, Event, Observer, Phase, Round};

/// Interval between progress lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

/// The first failure of standard output, other than a closed pipe.
static OUTPUT_FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to standard output. A closed pipe is not an error worth a message; of others [`output_failure`] tells at the end.
pub(crate) fn print(text: &str) {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            OUTPUT_FAILURE.get_or_init(|| error);
        }
        _ => {}
    }
}

/// The reason why something printed is not where it should be, such as a full disk.
pub(crate) fn output_failure() -> Option<&'static io::Error> {
    if let Err(error) = io::stdout().flush()
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        OUTPUT_FAILURE.get_or_init(|| error);
    }
    OUTPUT_FAILURE.get()
}

/// Prints an error with its causes, once.
pub(crate) fn error(error: &anyhow::Error) {
    let mut text = String::from("error: ");
    let mut previous = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // A transparent wrapper repeats its cause; a reader wants each thing said once.
        if previous.contains(&cause) {
            continue;
        }
        if !previous.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
        previous = cause;
    }
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Exit status of work that was interrupted and can be resumed, as a shell gives it for Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// Returns the flag that Ctrl-C sets. The first Ctrl-C requests a safe stop, the second ends the
/// program.
pub(crate) fn stop_on_interrupt() -> anyhow::Result<&'static AtomicBool> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
        let _ = writeln!(std::io::stderr(), "\nstopping at the next safe place; once more to stop at once");
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(&STOP)
}

/// Returns the flag that Ctrl-C sets to end only the current activity. A second Ctrl-C before the
/// flag is cleared ends the program.
pub(crate) fn interruptions() -> anyhow::Result<&'static AtomicBool> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(&STOP)
}

/// Progress of one long piece of work: a bar with the time left in a terminal, a line every ten seconds elsewhere.
pub(crate) struct Meter {
    name: &'static str,
    bar: ProgressBar,
    terminal: bool,
    started: Instant,
    last_line: Instant,
    /// Progress when this process began, which may continue from an earlier one's.
    first: Option<u64>,
}

impl Meter {
    pub(crate) fn new(name: &'static str) -> Self {
        let (terminal, now) = (console_is_terminal(), Instant::now());
        Self { name, bar: ProgressBar::hidden(), terminal, started: now, last_line: now, first: None }
    }

    /// Shows that `done` of `total` is done, with a message.
    pub(crate) fn show(&mut self, done: u64, total: u64, message: &str) {
        let first = *self.first.get_or_insert(done);
        if self.terminal {
            if self.bar.is_hidden() && total > 0 {
                self.bar = ProgressBar::new(total);
                let style = "{prefix:>14.bold} {bar:28.cyan/blue} {percent:>3} %  {elapsed} elapsed, {eta} left  {msg}";
                let style =
                    ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
                self.bar.set_style(style.progress_chars("━╸─"));
                self.bar.set_prefix(self.name);
                self.bar.set_position(done);
                self.bar.reset_eta();
            }
            self.bar.set_position(done);
            self.bar.set_message(message.to_owned());
        } else if self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            if total == 0 {
                // The length of a pipe is not known.
                let _ = writeln!(std::io::stderr(), "{} {message}", self.name);
                return;
            }
            let share = 100.0 * done as f64 / total.max(1) as f64;
            let left = seconds_left(self.started.elapsed().as_secs_f64(), [first, done, total]);
            let left = left.map_or_else(String::new, |left| format!(", about {left:.0} s left"));
            let _ = writeln!(std::io::stderr(), "{} {share:.1} %{left}  {message}", self.name);
        }
    }

    /// Clears the bar.
    pub(crate) fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the estimated remaining seconds at this process's pace; `None` at the beginning.
fn seconds_left(elapsed: f64, [first, done, total]: [u64; 3]) -> Option<f64> {
    let new = done.saturating_sub(first);
    (new > 0).then(|| elapsed * total.saturating_sub(done) as f64 / new as f64)
}

/// Shows progress and runs the evaluations that a run asks for.
pub(crate) struct Ui {
    bar: ProgressBar,
    terminal: bool,
    last_line: Instant,
    started: Instant,
    recent: String,
    /// Every evaluation so far: label of its position, and the results by split.
    pub(crate) evaluations: Vec<(String, Vec<Evaluation>)>,
}

impl Ui {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::hidden();
        Self {
            bar,
            terminal: console_is_terminal(),
            last_line: Instant::now(),
            started: Instant::now(),
            recent: String::new(),
            evaluations: Vec::new(),
        }
    }

    /// Clears the bar.
    pub(crate) fn finish(&mut self) {
        self.bar.finish_and_clear();
    }

    /// A line that stays.
    pub(crate) fn say(&self, text: &str) {
        if self.terminal && !self.bar.is_finished() {
            self.bar.println(text);
            if self.bar.is_hidden() {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        } else {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    fn start_bar(&mut self, name: &str, total: u64, done: u64) {
        self.bar.finish_and_clear();
        if !self.terminal {
            return;
        }
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template(
            "{prefix:>14.bold} {bar:28.cyan/blue} {pos:>4}/{len}  {elapsed} elapsed, {eta} left  {msg}",
        )
        .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("━╸─"));
        bar.set_prefix(name.to_owned());
        bar.set_position(done);
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(250));
        self.bar = bar;
    }

    /// A bar of its own for work of equal parts.
    pub(crate) fn count(&mut self, name: &str, finished: usize, total: usize) {
        self.move_bar(name, finished, total);
        self.say_now_and_then(&format!("{name} {finished}/{total}"));
    }

    /// A bar of its own for an evaluation or another loop over tasks.
    pub(crate) fn tasks(&mut self, name: &str, finished: usize, total: usize, solved: usize) {
        self.move_bar(name, finished, total);
        if finished > 0 {
            let message = format!("success {:.1} %", 100.0 * solved as f64 / finished as f64);
            self.say_now_and_then(&format!("{name} {finished}/{total}  {message}"));
            self.bar.set_message(message);
        }
    }

    fn move_bar(&mut self, name: &str, finished: usize, total: usize) {
        if self.bar.prefix() != name || self.bar.is_finished() {
            self.start_bar(name, total as u64, 0);
        }
        self.bar.set_position(finished as u64);
    }

    /// A line if no bar is seen, and the last one is some time ago.
    fn say_now_and_then(&mut self, line: &str) {
        if !self.terminal && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            self.say(line);
        }
    }

    /// A bar of the demonstrations, which a world of one's own may take long to play.
    fn demonstrations(&mut self, played: usize, total: usize) {
        self.count("demonstrations", played, total);
        if played == total {
            self.bar.finish_and_clear();
        }
    }

    fn step(&mut self, phase: Phase, done: u64, total: u64, message: String) {
        let name = match phase {
            Phase::Sft => "warm start",
            Phase::Rl => "rl",
        };
        if self.bar.prefix() != name || self.bar.is_finished() {
            self.start_bar(name, total, done.saturating_sub(1));
            self.started = Instant::now();
        }
        self.bar.set_position(done);
        self.bar.set_message(message.clone());
        if !self.terminal && (self.last_line.elapsed() >= LINE_INTERVAL || done == total) {
            self.last_line = Instant::now();
            self.say(&format!("{name} {done}/{total}  {message}"));
        }
        self.recent = message;
    }
}

impl Observer for Ui {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Stage(name) => {
                self.bar.finish_and_clear();
                self.say(&format!("· {name}"));
            }
            Event::Note(text) => self.say(&format!("  {text}")),
            Event::Demonstrations { played, total } => self.demonstrations(played, total),
            Event::Rollout { finished, total, solved, round, .. } => {
                let round = round.map_or_else(String::new, |Round { number, most, kept, wanted }| {
                    format!("round {number} of at most {most}, {kept}/{wanted} groups, ")
                });
                let live = format!("{round}rollout {finished}/{total}, {solved} solved");
                // Before the first step there is no bar of steps yet.
                if self.bar.is_finished() || self.bar.prefix().is_empty() {
                    self.start_bar("rollout", total as u64, 0);
                }
                if self.bar.prefix() == "rollout" {
                    self.bar.set_position(finished as u64);
                    self.bar.set_message(live.clone());
                } else {
                    self.bar.set_message(format!("{}  [{live}]", self.recent));
                }
                // Only of long ones: the lines of steps say enough of short ones.
                if !self.terminal && self.last_line.elapsed() >= 3 * LINE_INTERVAL {
                    self.last_line = Instant::now();
                    self.say(&format!("  {live}"));
                }
            }
            Event::Step { position, total, metrics } => {
                let get = |tag: &str| metrics.get(tag).unwrap_or(f64::NAN);
                // A selection may have kept no group.
                let turns = metrics
                    .get("rollout/turns/mean")
                    .map_or_else(|| "no group".to_owned(), |turns| format!("turns {turns:.1}"));
                // Servers that sample do not say it.
                let entropy = metrics
                    .get("rollout/entropy")
                    .map_or_else(String::new, |nats| format!("  entropy {nats:.2}"));
                let message = match position.phase {
                    Phase::Sft => {
                        format!("loss {:.3}  {:.1}k tok/s", get("loss/sft"), get("perf/tokens_per_s") / 1e3)
                    }
                    Phase::Rl => format!(
                        "success {:>5.1} %  {turns}{entropy}  clip {:.3}  shared {:.0} %  {:.1} s",
                        100.0 * get("train/success_rate"),
                        get("loss/clip_frac"),
                        100.0 * get("perf/tokens_saved")
                            / (get("perf/tokens_saved") + get("perf/tokens_computed")).max(1.0),
                        get("perf/step_s"),
                    ),
                };
                self.step(position.phase, position.step, total, message);
            }
            Event::Checkpoint(_) => {}
        }
    }

    fn evaluate(&mut self, point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        let panels: Panels = point.run.read_json("panel.json").map_err(|error| error.to_string())?;
        let mut results = Vec::new();
        for panel in panels.evaluation.values() {
            let settings = PlaySettings {
                config: point.config,
                task_set: point.world.shared_task_set(),
                tokenizer: point.tokenizer,
                temperature: point.config.eval.temperature,
                agent: Agent::Plain,
                trials: 1,
                stop: &STOP,
            };
            let outcome = evaluate_with(&settings, panel, point.samplers, |progress| {
                self.tasks(
                    "evaluate",
                    progress.finished.load(Ordering::Relaxed),
                    panel.tasks.len(),
                    progress.solved.load(Ordering::Relaxed),
                );
            });
            self.bar.finish_and_clear();
            match outcome {
                Ok((result, _)) => {
                    self.say(&format!("  {}", one_line(&point.position.label(), &result)));
                    results.push(result);
                }
                Err(EvalError::Interrupted) => return Ok(ControlFlow::Break(())),
                Err(error) => return Err(error.to_string()),
            }
        }
        let label = point.position.label();
        point.run.write_json(&format!("eval/{label}.json"), &results).map_err(|error| error.to_string())?;
        self.evaluations.push((label, results));
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns an evaluation in one line.
pub(crate) fn one_line(label: &str, result: &Evaluation) -> String {
    let rate = &result.success;
    let failed = match result.failed {
        0 => String::new(),
        failed => format!("  ({failed} tasks failed in the environment or the sampler and are not counted)"),
    };
    format!(
        "{label}  {}: {}/{} = {:.1} % [{:.1}, {:.1}]  mean turns {:.1}  {:.1} s{failed}",
        result.split,
        rate.successes,
        rate.trials,
        100.0 * rate.rate,
        100.0 * rate.low,
        100.0 * rate.high,
        result.mean_turns,
        result.seconds
    )
}

fn console_is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}

#[cfg(test)]
mod tests {
    use super::seconds_left;

    #[test]
    fn the_time_left_is_at_the_pace_of_this_process() {
        assert_eq!(seconds_left(60.0, [0, 25, 100]), Some(180.0));
        // Work that goes on at 90 of 100.
        assert_eq!(seconds_left(60.0, [90, 92, 100]), Some(240.0));
        assert_eq!(seconds_left(60.0, [90, 90, 100]), None);
    }
}
