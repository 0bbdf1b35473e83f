//! Progress of long tasks: bars in a terminal, lines otherwise.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use turnwise_eval::Evaluation;
use turnwise_train::{EvaluationPoint, Event, Observer, Phase, Round};

use crate::console;
use crate::library::evaluate_point;

const LINE_INTERVAL: Duration = Duration::from_secs(10);

static STOP: AtomicBool = AtomicBool::new(false);

static OUTPUT_FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to standard output. Ignores a closed pipe; saves other errors for
/// [`output_failure`].
pub(crate) fn print(text: &str) {
    match writeln!(console::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            OUTPUT_FAILURE.get_or_init(|| error);
        }
        _ => {}
    }
}

/// Returns the first write error on standard output, e.g. a full disk.
pub(crate) fn output_failure() -> Option<&'static io::Error> {
    if let Err(error) = console::stdout().flush()
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        OUTPUT_FAILURE.get_or_init(|| error);
    }
    OUTPUT_FAILURE.get()
}

pub(crate) fn error(error: &anyhow::Error) {
    console::say(&format!("error: {}", described(error)));
}

pub(crate) fn described(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut previous = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if previous.contains(&cause) {
            continue;
        }
        if !previous.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
        previous = cause;
    }
    text
}

pub(crate) fn usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    // Errors repeat arguments; without control characters, clap may print them in colour.
    let is_plain = |text: &str| matches!(console::visible(text), Cow::Borrowed(_));
    if arguments.iter().all(|argument| is_plain(&argument.to_string_lossy())) {
        let _ = error.print();
        return ExitCode::from(error.exit_code() as u8);
    }
    console::say(error.render().to_string().trim_end());
    ExitCode::from(2)
}

/// Exit status of an interrupted, resumable task, as in shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// Returns a flag that Ctrl-C sets to request a clean stop; a second Ctrl-C exits.
pub(crate) fn stop_on_interrupt() -> anyhow::Result<&'static AtomicBool> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
        console::say("\nstopping at the next safe place; once more to stop at once");
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(&STOP)
}

/// Requests a clean stop when standard input closes.
///
/// A sweep holds the write end of each run's standard input, which closes even if the sweep is
/// killed. A parent-death signal would need Linux and unsafe code.
pub(crate) fn stop_at_end_of_input() -> anyhow::Result<()> {
    let watch = || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        STOP.store(true, Ordering::SeqCst);
    };
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(watch)
        .context("cannot start a thread that waits for the end of standard input")?;
    Ok(())
}

/// Returns a flag that Ctrl-C sets to cancel the current request; if it is still set at the next
/// Ctrl-C, the program exits.
pub(crate) fn interruptions() -> anyhow::Result<&'static AtomicBool> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(&STOP)
}

/// Progress of one long task: a bar in a terminal, otherwise a line every ten seconds.
pub(crate) struct Meter {
    name: &'static str,
    bar: ProgressBar,
    terminal: bool,
    started: Instant,
    last_line: Instant,
    /// Progress when this process started; it is not 0 if the task was resumed.
    first: Option<u64>,
}

impl Meter {
    pub(crate) fn new(name: &'static str) -> Self {
        let (terminal, now) = (console::stderr_is_terminal(), Instant::now());
        Self { name, bar: ProgressBar::hidden(), terminal, started: now, last_line: now, first: None }
    }

    pub(crate) fn show(&mut self, done: u64, total: u64, message: &str) {
        let first = *self.first.get_or_insert(done);
        if self.terminal {
            if self.bar.is_hidden() && total > 0 {
                self.bar = ProgressBar::new(total);
                let style = "{prefix:>14.bold} {bar:28.cyan/blue} {percent:>3} %  {elapsed} elapsed, {eta} left  {msg}";
                let style =
                    ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
                self.bar.set_style(style.progress_chars("━╸─"));
                console::set_prefix(&self.bar, self.name);
                self.bar.set_position(done);
                self.bar.reset_eta();
            }
            self.bar.set_position(done);
            console::set_message(&self.bar, message);
        } else if self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            if total == 0 {
                console::say(&format!("{} {message}", self.name));
                return;
            }
            let share = 100.0 * done as f64 / total.max(1) as f64;
            let left = seconds_left(self.started.elapsed().as_secs_f64(), [first, done, total]);
            let left = left.map_or_else(String::new, |left| format!(", about {left:.0} s left"));
            console::say(&format!("{} {share:.1} %{left}  {message}", self.name));
        }
    }

    pub(crate) fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn seconds_left(elapsed: f64, [first, done, total]: [u64; 3]) -> Option<f64> {
    let new = done.saturating_sub(first);
    (new > 0).then(|| elapsed * total.saturating_sub(done) as f64 / new as f64)
}

pub(crate) struct Ui {
    bar: ProgressBar,
    terminal: bool,
    last_line: Instant,
    started: Instant,
    recent: String,
    /// Checkpoint label, and results by split.
    pub(crate) evaluations: Vec<(String, Vec<Evaluation>)>,
}

impl Ui {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::hidden();
        Self {
            bar,
            terminal: console::stderr_is_terminal(),
            last_line: Instant::now(),
            started: Instant::now(),
            recent: String::new(),
            evaluations: Vec::new(),
        }
    }

    pub(crate) fn finish(&mut self) {
        self.bar.finish_and_clear();
    }

    pub(crate) fn say(&self, text: &str) {
        if self.terminal && !self.bar.is_finished() {
            console::say_above(&self.bar, text);
            if self.bar.is_hidden() {
                console::say(text);
            }
        } else {
            console::say(text);
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
        console::set_prefix(&bar, name);
        bar.set_position(done);
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(250));
        self.bar = bar;
    }

    pub(crate) fn count(&mut self, name: &str, finished: usize, total: usize) {
        self.move_bar(name, finished, total);
        self.say_now_and_then(&format!("{name} {finished}/{total}"));
    }

    /// Shows a bar for a loop over tasks, with the success rate.
    pub(crate) fn tasks(&mut self, name: &str, finished: usize, total: usize, solved: usize) {
        self.move_bar(name, finished, total);
        if finished > 0 {
            let message = format!("success {:.1} %", 100.0 * solved as f64 / finished as f64);
            self.say_now_and_then(&format!("{name} {finished}/{total}  {message}"));
            console::set_message(&self.bar, &message);
        }
    }

    fn move_bar(&mut self, name: &str, finished: usize, total: usize) {
        if self.bar.prefix() != name || self.bar.is_finished() {
            self.start_bar(name, total as u64, 0);
        }
        self.bar.set_position(finished as u64);
    }

    fn say_now_and_then(&mut self, line: &str) {
        if !self.terminal && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            self.say(line);
        }
    }

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
        console::set_message(&self.bar, &message);
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
                // No bar of steps exists before the first step.
                if self.bar.is_finished() || self.bar.prefix().is_empty() {
                    self.start_bar("rollout", total as u64, 0);
                }
                if self.bar.prefix() == "rollout" {
                    self.bar.set_position(finished as u64);
                    console::set_message(&self.bar, &live);
                } else {
                    console::set_message(&self.bar, &format!("{}  [{live}]", self.recent));
                }
                // Short steps print their own lines often enough.
                if !self.terminal && self.last_line.elapsed() >= 3 * LINE_INTERVAL {
                    self.last_line = Instant::now();
                    self.say(&format!("  {live}"));
                }
            }
            Event::Step { position, total, metrics } => {
                let get = |tag: &str| metrics.get(tag).unwrap_or(f64::NAN);
                // The group filter may have kept no group.
                let turns = metrics
                    .get("rollout/turns/mean")
                    .map_or_else(|| "no group".to_owned(), |turns| format!("turns {turns:.1}"));
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
        let label = point.position.label();
        let ui = RefCell::new(self);
        let outcome = evaluate_point(
            point,
            &STOP,
            &mut |_, finished, total, solved| ui.borrow_mut().tasks("evaluate", finished, total, solved),
            &mut |label, result| {
                let ui = ui.borrow();
                ui.bar.finish_and_clear();
                ui.say(&format!("  {}", one_line(label, result)));
            },
        );
        let ui = ui.into_inner();
        ui.bar.finish_and_clear();
        match outcome? {
            ControlFlow::Continue(results) => ui.evaluations.push((label, results)),
            ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }
}

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

#[cfg(test)]
mod tests {
    use super::seconds_left;

    #[test]
    fn the_time_left_is_at_the_pace_of_this_process() {
        assert_eq!(seconds_left(60.0, [0, 25, 100]), Some(180.0));
        assert_eq!(seconds_left(60.0, [90, 92, 100]), Some(240.0));
        assert_eq!(seconds_left(60.0, [90, 90, 100]), None);
    }
}
