//! Model cards: the `README.md` of an exported model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use toml::{Table, Value};
use turnwise_eval::Evaluation;
use turnwise_policy::run_folder::{checkpoint_label, enclosing_run};
use turnwise_train::RunDirectory;

use super::name_of;
use super::view::method_of_config;

/// Evaluations by checkpoint label; SFT labels sort first.
type Evaluations = BTreeMap<String, Vec<Evaluation>>;

fn evaluations(run: &RunDirectory) -> anyhow::Result<Evaluations> {
    let folder = run.path("eval");
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Evaluations::new()) };
    let mut found = Evaluations::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(label) = name.strip_suffix(".json") {
            found.insert(label.to_owned(), run.read_json(&format!("eval/{name}"))?);
        }
    }
    Ok(found)
}

pub(super) struct Card {
    name: String,
    label: String,
    method: String,
    settings: Table,
    text: String,
    evaluations: Evaluations,
}

impl Card {
    pub(super) fn of_policy(policy: &Path) -> anyhow::Result<Self> {
        let (root, label) = enclosing_run(policy).zip(checkpoint_label(policy)).with_context(|| {
            format!("--card: {} is neither a run nor its checkpoint; leave out --card", policy.display())
        })?;
        let run = RunDirectory::open(&root)?;
        let path = run.path("config.toml");
        let read = || path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(read)?;
        Ok(Self {
            name: name_of(&root),
            label,
            method: method_of_config(&text).with_context(read)?,
            settings: text.parse().with_context(read)?,
            text,
            evaluations: evaluations(&run)?,
        })
    }

    pub(super) fn markdown(&self, adapter: bool) -> Result<String, std::fmt::Error> {
        let env = self.text("env", "kind");
        let mut card = String::new();
        writeln!(card, "---\nlibrary_name: {}", if adapter { "peft" } else { "transformers" })?;
        let base = self.text("policy", "model");
        // Only hub models are named: a local path means nothing to others.
        if base.split('/').count() == 2 && !base.starts_with(['.', '/', '~']) {
            writeln!(card, "base_model: {base}")?;
        }
        writeln!(
            card,
            "tags:\n- turnwise\n- reinforcement-learning\n- agent\n- {env}\n---\n\n# {}\n",
            self.name
        )?;
        writeln!(
            card,
            "A policy for `{env}`, trained with Turnwise by {}. This is checkpoint `{}` of a run of {} steps of {} \
             tasks with {} trajectories each, after {} updates of SFT. Exported with Turnwise {}.\n",
            self.method,
            self.label,
            self.number("train", "steps"),
            self.number("rollout", "tasks_per_step"),
            self.number("rollout", "group_size"),
            self.number("sft", "steps"),
            env!("CARGO_PKG_VERSION")
        )?;
        writeln!(card, "## Success\n")?;
        if self.evaluations.is_empty() {
            writeln!(card, "The run has no evaluations.\n")?;
        } else {
            writeln!(
                card,
                "Intervals are Wilson's, 95 %, over the tasks of one run. A panel is a fixed list of tasks.\n\n\
                 | checkpoint | split | success | tasks | temperature | mean turns | panel |\n|---|---|---|---|---|---|---|"
            )?;
        }
        for (label, results) in &self.evaluations {
            let label = if *label == self.label { format!("**{label}**") } else { label.clone() };
            for result in results {
                let rate = result.success;
                writeln!(
                    card,
                    "| {label} | {} | {:.1} % [{:.1}, {:.1}] | {} | {} | {:.1} | `{}` |",
                    result.split,
                    100.0 * rate.rate,
                    100.0 * rate.low,
                    100.0 * rate.high,
                    rate.trials,
                    result.temperature,
                    result.mean_turns,
                    result.panel.get(..12).unwrap_or(&result.panel)
                )?;
            }
        }
        let (name, label) = (&self.name, &self.label);
        writeln!(card, "\n## Commands\n\n```sh")?;
        writeln!(card, "turnwise train config.toml                              # the settings below")?;
        writeln!(card, "turnwise eval runs/{name} --checkpoint {label}\n```\n")?;
        writeln!(card, "## Settings\n\n```toml\n{}\n```", self.text.trim_end())?;
        Ok(card)
    }

    fn value(&self, table: &str, key: &str) -> Option<&Value> {
        self.settings.get(table)?.get(key)
    }

    fn text(&self, table: &str, key: &str) -> &str {
        self.value(table, key).and_then(Value::as_str).unwrap_or_default()
    }

    fn number(&self, table: &str, key: &str) -> i64 {
        self.value(table, key).and_then(Value::as_integer).unwrap_or(0)
    }
}
