//! Model cards: what a run trained, as the `README.md` of an exported folder.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use toml::{Table, Value};
use turnwise_eval::Evaluation;
use turnwise_policy::run_folder::{checkpoint_label, enclosing_run};
use turnwise_train::RunDirectory;

use super::name_of;
use super::view::method_of_config;

/// Evaluations by position, in order.
type Evaluations = Vec<(String, Vec<Evaluation>)>;

fn evaluations(run: &RunDirectory) -> anyhow::Result<Evaluations> {
    let folder = run.path("eval");
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(label) = name.strip_suffix(".json") {
            found.push((label.to_owned(), run.read_json(&format!("eval/{name}"))?));
        }
    }
    // Positions of the warm start come before those of reinforcement learning, as they do by name.
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// What a card says of a policy of a run.
pub(super) struct Card {
    name: String,
    label: String,
    method: String,
    settings: Table,
    /// The settings as the run wrote them.
    text: String,
    evaluations: Evaluations,
}

impl Card {
    /// Reads what the run of a policy wrote.
    ///
    /// # Errors
    /// Fails if the policy is not of a run, or if the run's settings or evaluations cannot be read.
    pub(super) fn of_policy(policy: &Path) -> anyhow::Result<Self> {
        let root = enclosing_run(policy)
            .with_context(|| format!("--card: {} is not of a run; leave it out", policy.display()))?;
        let run = RunDirectory::open(&root)?;
        let path = run.path("config.toml");
        let read = || path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(read)?;
        Ok(Self {
            name: name_of(&root),
            label: checkpoint_label(policy).unwrap_or_default(),
            method: method_of_config(&text).with_context(read)?,
            settings: text.parse().with_context(read)?,
            text,
            evaluations: evaluations(&run)?,
        })
    }

    /// Returns the text of the card of an adapter or a whole model.
    ///
    /// # Errors
    /// Fails if the text cannot be formatted.
    pub(super) fn markdown(&self, adapter: bool) -> Result<String, std::fmt::Error> {
        let env = self.text("env", "kind");
        let mut card = String::new();
        writeln!(card, "---\nlibrary_name: {}", if adapter { "peft" } else { "transformers" })?;
        let base = self.text("policy", "model");
        // A path of one machine is no model of the hub.
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
            "A policy for `{env}`, trained with Turnwise {} by {}: {} steps of {} \
             tasks with {} trajectories each, after {} updates of supervised warm start. This is checkpoint `{}`.\n",
            env!("CARGO_PKG_VERSION"),
            self.method,
            self.number("train", "steps"),
            self.number("rollout", "tasks_per_step"),
            self.number("rollout", "group_size"),
            self.number("sft", "steps"),
            self.label
        )?;
        writeln!(card, "## Success\n")?;
        if self.evaluations.is_empty() {
            writeln!(card, "The run has no evaluation.\n")?;
        } else {
            writeln!(
                card,
                "With Wilson's 95 % intervals over the tasks of one run. A panel is a fixed list of tasks.\n\n\
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
