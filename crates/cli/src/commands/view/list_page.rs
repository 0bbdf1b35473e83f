use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use anyhow::Context as _;
use toml::{Table, Value};
use turnwise_train::record::directory::{RunStatus, Status};
use turnwise_train::record::metrics::{read_metrics, seconds};
use turnwise_train::{Phase, RunDirectory};

use super::query::{Place, encoded};
use super::run_page::{ago, evaluations, pager};
use super::{explain, search};
use crate::commands::pages::html::escape;
use crate::commands::{is_run, name_of};
use crate::plot::chart::spark;

const ROWS: usize = 100;

/// Maximum number of points in a sparkline; a longer curve is averaged down to this number.
const POINTS: usize = 60;

pub(super) struct Runs {
    root: PathBuf,
    known: Mutex<BTreeMap<String, (String, Arc<Summary>)>>,
}

#[derive(Debug, Default)]
pub(super) struct Summary {
    state: Option<RunStatus>,
    reason: Option<String>,
    warnings: usize,
    step: u64,
    phase: Option<Phase>,
    steps: Option<i64>,
    method: String,
    env: String,
    /// Success in the last evaluation, or in the last rollouts if there is no evaluation yet.
    success: Option<Success>,
    training: Vec<f64>,
    entropy: Vec<f64>,
    /// Time of the last change, in seconds since 1970.
    changed: f64,
}

type Success = (f64, Option<(f64, f64)>, String);

impl Runs {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: Mutex::default() }
    }

    pub(super) fn title(&self) -> String {
        name_of(&self.root)
    }

    /// Returns all run names; runs in a subfolder are named `SWEEP/RUN`.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for name in folders(&self.root) {
            let path = self.root.join(&name);
            if is_run(&path) {
                names.push(name);
            } else {
                let runs = folders(&path).into_iter().filter(|inner| is_run(&path.join(inner)));
                names.extend(runs.map(|inner| format!("{name}/{inner}")));
            }
        }
        names
    }

    /// Returns the folder of a run in the list; `None` for any other name, so that `..` cannot
    /// escape the root.
    pub(super) fn folder(&self, name: &str) -> Option<PathBuf> {
        self.names().iter().any(|known| known == name).then(|| self.root.join(name))
    }

    fn stamp(&self, name: &str) -> String {
        let of = |file: &str| stamp_of(&self.root.join(name).join(file));
        [of("metrics.jsonl"), of("status.json"), of("eval")].join(" ")
    }

    fn stamps(&self) -> Vec<(String, String)> {
        let stamps = self.names().into_iter().map(|name| {
            let stamp = self.stamp(&name);
            (name, stamp)
        });
        stamps.collect()
    }

    fn summary(&self, name: &str, stamp: &str) -> Arc<Summary> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, summary)) = lock().get(name)
            && known == stamp
        {
            return Arc::clone(summary);
        }
        let summary = Arc::new(Summary::read(&self.root.join(name)));
        lock().insert(name.to_owned(), (stamp.to_owned(), Arc::clone(&summary)));
        summary
    }

    pub(super) fn version(&self) -> String {
        version_of(&self.stamps())
    }

    pub(super) fn page(&self, place: Place<'_>) -> anyhow::Result<(String, String)> {
        std::fs::read_dir(&self.root).with_context(|| self.root.display().to_string())?;
        let words = place.query.get("q").to_lowercase();
        let stamps = self.stamps();
        let mut runs: Vec<(&str, Arc<Summary>)> =
            stamps.iter().map(|(name, stamp)| (name.as_str(), self.summary(name, stamp))).collect();
        let all = runs.len();
        runs.retain(|(name, run)| {
            [*name, &run.method, &run.env].iter().any(|text| text.to_lowercase().contains(&words))
        });
        runs.sort_by(|(a, one), (b, two)| two.changed.total_cmp(&one.changed).then_with(|| a.cmp(b)));
        let running = runs.iter().filter(|(_, run)| run.state == Some(RunStatus::Running)).count();
        let mut body = format!(
            "<h1>{}</h1><p class=\"status\">{} of {all} runs, newest first; {running} running</p>{}",
            escape(&self.title()),
            runs.len(),
            search::form(place, "/", "filter by name, method, environment")
        );
        let pages = runs.len().div_ceil(ROWS);
        let page = place.query.number("page", 1).clamp(1, pages.max(1));
        body.push_str(
            "<div class=\"scroll\"><table class=\"runs\"><tr><th>run</th><th>state</th><th>success</th><th>training success</th>\
             <th>method</th><th>environment</th><th>entropy</th><th>changed</th></tr>",
        );
        for (name, run) in runs.iter().skip((page - 1) * ROWS).take(ROWS) {
            body.push_str(&run.row(name));
        }
        body.push_str("</table></div>");
        body.push_str(&pager(place, "/", page, pages));
        Ok((body, version_of(&stamps)))
    }
}

impl Summary {
    fn read(folder: &Path) -> Self {
        let mut summary = Self::default();
        let config = std::fs::read_to_string(folder.join("config.toml")).unwrap_or_default();
        summary.method = explain::of_config(&config).unwrap_or_else(|_| "-".into());
        if let Ok(config) = config.parse::<Table>() {
            let of = |table: &str, key: &str| config.get(table)?.get(key).cloned();
            summary.env =
                of("env", "kind").and_then(|kind| Some(kind.as_str()?.to_owned())).unwrap_or_default();
            summary.steps = of("train", "steps").as_ref().and_then(Value::as_integer);
        }
        let changed =
            |file: &str| folder.join(file).metadata().ok().as_ref().and_then(modified).unwrap_or(0.0);
        summary.changed =
            ["metrics.jsonl", "status.json", "config.toml"].map(changed).into_iter().fold(0.0, f64::max);
        let Ok(directory) = RunDirectory::open(folder) else { return summary };
        if let Ok(status) = directory.read_json::<Status>("status.json") {
            summary.state = Some(status.state);
            summary.reason = status.reason;
            summary.warnings = status.warnings.len();
            (summary.step, summary.phase) = (status.position.step, Some(status.position.phase));
        }
        let lines = read_metrics(&directory.path("metrics.jsonl")).unwrap_or_default();
        if let Some(last) = lines.last() {
            (summary.step, summary.phase) = (last.step, Some(last.phase));
        }
        let curve = |tag: &str| -> Vec<f64> {
            let learning = lines.iter().filter(|line| line.phase == Phase::Rl);
            learning.filter_map(|line| line.metrics.get(tag)).filter(|value| value.is_finite()).collect()
        };
        let training = curve("train/success_rate");
        let evaluated = evaluations(&directory).into_iter().filter_map(|(split, mut found)| {
            let (step, result) = found.pop()?;
            Some((step, result.success, split))
        });
        summary.success = match evaluated.max_by_key(|(step, ..)| *step) {
            Some((_, rate, split)) => Some((rate.rate, Some((rate.low, rate.high)), split)),
            None => training.last().map(|&rate| (rate, None, "training".into())),
        };
        summary.training = thinned(&training);
        summary.entropy = thinned(&curve("rollout/entropy"));
        summary
    }

    fn row(&self, name: &str) -> String {
        let state = match self.state {
            Some(state) => format!("{state:?}").to_lowercase(),
            None => "unknown".into(),
        };
        let title = self.reason.as_deref().unwrap_or_default();
        let mut position = match (self.phase, self.steps) {
            (Some(Phase::Sft), _) => format!("warm start, step {}", self.step),
            (_, Some(steps)) => format!("step {} of {steps}", self.step),
            _ => format!("step {}", self.step),
        };
        if self.warnings > 0 {
            let _ = write!(position, ", <b class=\"warning\">{} warnings</b>", self.warnings);
        }
        let success = self.success.as_ref().map_or_else(
            || "<td>-</td>".into(),
            |(rate, interval, split)| {
                let interval = interval.map_or_else(String::new, |(low, high)| {
                    format!(" <small>[{:.0}, {:.0}]</small>", 100.0 * low, 100.0 * high)
                });
                format!("<td title=\"on {}\">{:.1} %{interval}</td>", escape(split), 100.0 * rate)
            },
        );
        format!(
            "<tr class=\"item\"><td><a href=\"/run/{}\">{}</a></td><td title=\"{}\"><i class=\"state {state}\"></i> {state}<br>\
             <small>{position}</small></td>{success}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            encoded(name),
            escape(name),
            escape(title),
            spark(&self.training, Some((0.0, 1.0)), "training success"),
            escape(&self.method),
            escape(&self.env),
            spark(&self.entropy, None, "entropy"),
            ago(seconds() - self.changed)
        )
    }
}

fn thinned(values: &[f64]) -> Vec<f64> {
    let size = values.len().div_ceil(POINTS).max(1);
    values.chunks(size).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

fn folders(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn modified(file: &Metadata) -> Option<f64> {
    Some(file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

pub(super) fn stamp_of(path: &Path) -> String {
    let found = path.metadata().ok();
    let length = found.as_ref().map_or(0, Metadata::len);
    format!("{length}@{}", found.as_ref().and_then(modified).unwrap_or(0.0))
}

fn version_of(stamps: &[(String, String)]) -> String {
    let lines: Vec<String> = stamps.iter().map(|(name, stamp)| format!("{name} {stamp}")).collect();
    short_hash(&lines.join("\n"))
}

pub(super) fn short_hash(text: &str) -> String {
    use sha2::Digest as _;
    turnwise_core::hexadecimal(&sha2::Sha256::digest(text))[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for run in ["a", "sweep/b", "sweep/c<i>"] {
            let path = folder.path().join("runs").join(run);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("config.toml"), "[env]\nkind = \"<b>\"\n[train]\nsteps = 7\n").unwrap();
        }
        std::fs::create_dir_all(folder.path().join("outside")).unwrap();
        std::fs::write(folder.path().join("outside/config.toml"), "").unwrap();
        folder
    }

    #[test]
    fn only_runs_of_the_list_have_pages() {
        let folder = folder();
        let runs = Runs::new(&folder.path().join("runs"));
        assert_eq!(runs.names(), ["a", "sweep/b", "sweep/c<i>"]);
        assert!(runs.folder("sweep/b").is_some());
        for hostile in ["../outside", "a/../../outside", "/etc", "sweep", "", ".", "a/"] {
            assert_eq!(runs.folder(hostile), None, "{hostile}");
        }
    }

    #[test]
    fn a_changed_run_changes_the_version_and_its_row() {
        let folder = folder();
        let runs = Runs::new(&folder.path().join("runs"));
        let query = super::super::query::Query::default();
        let page = || runs.page(Place { base: "", query: &query }).unwrap().0;
        let (before, version) = (page(), runs.version());
        assert!(
            before.contains("sweep/c&lt;i&gt;") && !before.contains("<i>") && before.contains("&lt;b&gt;")
        );
        assert!(
            before.contains("href=\"/run/sweep%2Fc%3Ci%3E\"") && before.contains("step 0 of 7"),
            "{before}"
        );
        assert_eq!(runs.version(), version);
        let line = r#"{"phase": "rl", "step": 3, "time": 0.0, "train/success_rate": 0.25}"#;
        std::fs::write(folder.path().join("runs/a/metrics.jsonl"), format!("{line}\n")).unwrap();
        assert_ne!(runs.version(), version);
        assert!(page().contains("25.0 %") && page().contains("step 3 of 7"), "{}", page());
    }

    #[test]
    fn long_curves_become_means() {
        assert_eq!(thinned(&[1.0, 3.0]), [1.0, 3.0]);
        let long: Vec<f64> = (0..120).map(f64::from).collect();
        assert_eq!((thinned(&long).len(), thinned(&long)[0]), (60, 0.5));
    }
}
