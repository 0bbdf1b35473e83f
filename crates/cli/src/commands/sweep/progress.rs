use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use turnwise_eval::compare::runs::RunResults;
use turnwise_train::Phase;
use turnwise_train::record::metrics::MetricsLine;

use crate::console;

const LINE_INTERVAL: Duration = Duration::from_secs(30);

const TAIL: u64 = 64 * 1024;

/// Number of recent steps over which success and speed are computed.
const RECENT: usize = 10;

pub(super) struct Progress {
    lines: MultiProgress,
    bars: BTreeMap<String, ProgressBar>,
    terminal: bool,
    last: BTreeMap<String, Instant>,
    width: usize,
}

impl Progress {
    pub(super) fn new(width: usize) -> Self {
        let terminal = console::stderr_is_terminal();
        Self { lines: MultiProgress::new(), bars: BTreeMap::new(), terminal, last: BTreeMap::new(), width }
    }

    pub(super) fn say(&self, name: &str, text: &str) {
        let line = format!("{name:<width$}  {text}", width = self.width);
        if self.terminal {
            console::say_above_all(&self.lines, &line);
        } else {
            console::say(&line);
        }
    }

    pub(super) fn show(&mut self, name: &str, text: &str) {
        if self.terminal {
            let bar = self.bars.entry(name.to_owned()).or_insert_with(|| {
                let style =
                    ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
                self.lines.add(ProgressBar::new(0).with_style(style))
            });
            console::set_message(bar, &format!("{name:<width$}  {text}", width = self.width));
            bar.tick();
            return;
        }
        let now = Instant::now();
        let last = self.last.entry(name.to_owned()).or_insert(now);
        if now.duration_since(*last) >= LINE_INTERVAL {
            *last = now;
            self.say(name, text);
        }
    }

    pub(super) fn end(&mut self, name: &str, text: &str) {
        if let Some(bar) = self.bars.remove(name) {
            bar.finish_and_clear();
        }
        self.last.remove(name);
        self.say(name, text);
    }
}

/// Returns a run's step, recent success, and estimated remaining time. The speed is computed only
/// from steps after `started` (seconds since 1970), because a resumed run has a time gap before it.
pub(super) fn of_run(root: &Path, sft_steps: u64, rl_steps: u64, started: f64) -> String {
    let lines = tail(&root.join("metrics.jsonl")).unwrap_or_default();
    let Some(last) = lines.last() else { return "starting".into() };
    let (name, total) = match last.phase {
        Phase::Sft => ("warm start", sft_steps),
        Phase::Rl => ("step", rl_steps),
    };
    let of_phase: Vec<&MetricsLine> = lines.iter().filter(|line| line.phase == last.phase).collect();
    let recent = &of_phase[of_phase.len().saturating_sub(RECENT)..];
    let rates: Vec<f64> = recent.iter().filter_map(|line| line.metrics.get("train/success_rate")).collect();
    let mut text = format!("{name} {}/{total}", last.step);
    if !rates.is_empty() {
        text.push_str(&format!("  success {:.1} %", 100.0 * rates.iter().sum::<f64>() / rates.len() as f64));
    }
    let first = recent.iter().find(|line| line.time >= started);
    if let Some(first) = first.filter(|first| last.step > first.step && total > last.step) {
        let a_step = (last.time - first.time) / (last.step - first.step) as f64;
        text.push_str(&format!("  ETA {}", duration(a_step * (total - last.step) as f64)));
    }
    text
}

pub(super) fn outcome(root: &Path) -> String {
    let found = RunResults::read(root).ok();
    let last = found.as_ref().and_then(|run| run.evaluations.last_key_value());
    let of_split = last.into_iter().flat_map(|(_, results)| results).map(|result| {
        let rate = &result.success;
        format!("{} {}/{} = {:.1} %", result.split, rate.successes, rate.trials, 100.0 * rate.rate)
    });
    of_split.collect::<Vec<_>>().join(", ")
}

fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

fn tail(path: &Path) -> std::io::Result<Vec<MetricsLine>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    // Skips the first and last line if incomplete.
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_the_end_of_the_metrics() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(of_run(folder.path(), 2, 30, 0.0), "starting");
        let path = folder.path().join("metrics.jsonl");
        let mut text = String::from("{\"phase\":\"sft\",\"step\":1,\"time\":0.0,\"loss/sft\":1.0}\n");
        std::fs::write(&path, &text).unwrap();
        assert_eq!(of_run(folder.path(), 2, 30, 0.0), "warm start 1/2");
        for step in 1..=20 {
            let rate = if step > 10 { 0.5 } else { 0.0 };
            text.push_str(&format!(
                "{{\"phase\":\"rl\",\"step\":{step},\"time\":{}.0,\"train/success_rate\":{rate}}}\n",
                100 + 7 * step
            ));
        }
        let half = "{\"phase\":\"rl\",\"st";
        std::fs::write(&path, format!("{text}{half}")).unwrap();
        assert_eq!(of_run(folder.path(), 2, 30, 0.0), "step 20/30  success 50.0 %  ETA 1 min 10 s");
        for (step, time, eta) in [(21, 90_000, ""), (22, 90_005, "  ETA 40 s")] {
            text.push_str(&format!(
                "{{\"phase\":\"rl\",\"step\":{step},\"time\":{time}.0,\"train/success_rate\":0.5}}\n"
            ));
            std::fs::write(&path, &text).unwrap();
            assert_eq!(
                of_run(folder.path(), 2, 30, 89_990.0),
                format!("step {step}/30  success 50.0 %{eta}")
            );
        }
        assert_eq!((duration(59.4), duration(7265.0)), ("59 s".into(), "2 h 01 min".into()));
    }
}
