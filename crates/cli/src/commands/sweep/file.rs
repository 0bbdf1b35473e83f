#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use toml::{Table, Value};
use turnwise_settings::assignment;
use turnwise_train::config::{ConfigSource, check_run_name, suggest};

use super::plan::name_argument;
use crate::worlds;

const KEYS: [&str; 8] = ["name", "base", "preset", "set", "seeds", "run", "grid", "pool"];
const RUN_KEYS: [&str; 5] = ["name", "base", "preset", "set", "baseline"];

/// Config settings that the sweep itself sets, each with the key of the sweep file that sets it.
const OWN: [(&str, &str); 2] = [("seed", "seeds"), ("name", "name")];

#[derive(Debug)]
pub(crate) struct SweepFile {
    path: PathBuf,
    /// Sweep name; the runs are in `runs/<name>`.
    pub(crate) name: String,
    base: Vec<PathBuf>,
    preset: Option<String>,
    set: Vec<String>,
    seeds: Vec<u64>,
    run: Vec<RunTable>,
    grid: Vec<(String, Vec<Value>)>,
    /// Pools by name: `turnwise compare` averages the differences of a pool's `[[run]]`s from their
    /// baselines.
    pool: Vec<(String, Vec<String>)>,
    overrides: Vec<String>,
}

#[derive(Deserialize)]
struct Text {
    name: Option<String>,
    #[serde(default)]
    base: Vec<PathBuf>,
    preset: Option<String>,
    #[serde(default)]
    set: Vec<String>,
    #[serde(default = "one_seed")]
    seeds: Vec<u64>,
    #[serde(default)]
    run: Vec<RunTable>,
    #[serde(default)]
    grid: Table,
    #[serde(default)]
    pool: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct RunTable {
    name: Option<String>,
    #[serde(default)]
    base: Vec<PathBuf>,
    preset: Option<String>,
    #[serde(default)]
    set: Vec<String>,
    baseline: Option<String>,
}

fn one_seed() -> Vec<u64> {
    vec![0]
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name of the entry's `[[run]]`; `None` in a file without `[[run]]` tables.
    pub(crate) run: Option<String>,
    /// Name of the `[[run]]` plus the grid point.
    pub(crate) name: String,
    /// Name of the baseline for `turnwise compare` at the same grid point. The baseline may be in
    /// another sweep of the same comparison.
    pub(crate) baseline: Option<String>,
    pub(crate) seed: u64,
    pub(crate) source: ConfigSource,
}

impl Entry {
    pub(crate) fn run_name(&self) -> String {
        format!("{}-seed-{}", self.name, self.seed)
    }

    /// Returns true if `--only` selects this run: by `[[run]]`, by grid point, or by `NAME-seed-N`.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.run.as_deref() == Some(name) || self.name == name || self.run_name() == name
    }
}

impl SweepFile {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| shown.to_string())?;
        let fail = |error: &toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let number = 1 + text[..at].matches('\n').count();
            let line = text.lines().nth(number - 1).unwrap_or_default().trim();
            anyhow!("{shown} line {number}: `{line}`: {}", error.message().replace('\n', " "))
        };
        let table: Table = text.parse().map_err(|error| fail(&error))?;
        check_keys(&table, &KEYS, &shown.to_string(), "")?;
        let runs = table.get("run").and_then(Value::as_array);
        for (index, run) in runs.into_iter().flatten().enumerate() {
            if let Value::Table(run) = run {
                check_keys(run, &RUN_KEYS, &shown.to_string(), &format!("run[{index}]."))?;
            }
        }
        let found: Text = toml::from_str(&text).map_err(|error| fail(&error))?;
        let Some(name) = found.name else {
            bail!("{shown}: name: is missing; write name = \"...\", the folder that the runs lie in");
        };
        check_name(&name).map_err(|reason| anyhow!("{shown}: name = {name:?}: {reason}"))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let beside =
            |files: Vec<PathBuf>| files.into_iter().map(|file| folder.join(file)).collect::<Vec<_>>();
        let mut grid = Vec::new();
        flatten(&found.grid, "", &mut grid).map_err(|reason| anyhow!("{shown}: {reason}"))?;
        let run = found.run.into_iter().map(|run| RunTable { base: beside(run.base), ..run }).collect();
        let sweep = Self {
            path: path.to_path_buf(),
            name,
            base: beside(found.base),
            preset: found.preset,
            set: found.set,
            seeds: found.seeds,
            run,
            grid,
            pool: found.pool.into_iter().collect(),
            overrides: Vec::new(),
        };
        sweep.check()?;
        Ok(sweep)
    }

    /// Adds settings (`key.sub=value`) for every run.
    ///
    /// # Errors
    /// Fails if a setting is invalid, is set by the sweep itself, or is varied by the grid or a
    /// `[[run]]`.
    pub(crate) fn with_overrides(mut self, overrides: &[String]) -> anyhow::Result<Self> {
        for text in overrides {
            let Some(setting) = key_of(text) else {
                bail!("{text:?} is no setting; write key.sub=value after the sweep file");
            };
            self.check_setting("the command line", setting)?;
            let of_runs = self.run.iter().flat_map(|run| &run.set).filter_map(|text| key_of(text));
            let mut varied = of_runs.chain(self.grid.iter().map(|(key, _)| key.as_str()));
            if let Some(key) = varied.find(|key| is_within(key, setting) || is_within(setting, key)) {
                bail!(
                    "{}: the command line sets `{setting}`, and the runs of this sweep differ in `{key}`; leave it out, or change \
                     the file",
                    self.path.display()
                );
            }
            self.overrides.push(text.clone());
        }
        Ok(self)
    }

    fn check(&self) -> anyhow::Result<()> {
        let shown = self.path.display();
        if self.seeds.is_empty() {
            bail!(
                "{shown}: seeds: is empty, so that there is nothing to run; write seeds = [0], or more of them"
            );
        }
        let mut seen = BTreeSet::new();
        if let Some(seed) = self.seeds.iter().find(|seed| !seen.insert(**seed)) {
            bail!("{shown}: seeds: has {seed} twice; the same seed gives the same run, so name each once");
        }
        let all_bases = self.base.iter().map(|file| ("base".to_owned(), file));
        let of_runs = self.run.iter().enumerate();
        let of_runs =
            of_runs.flat_map(|(at, run)| run.base.iter().map(move |file| (format!("run[{at}].base"), file)));
        for (key, file) in all_bases.chain(of_runs) {
            if !file.is_file() {
                let file = file.display();
                bail!("{shown}: {key}: there is no config {file}; paths are relative to the sweep file");
            }
        }
        let mut names = BTreeSet::new();
        for (index, run) in self.run.iter().enumerate() {
            let Some(name) = &run.name else {
                bail!("{shown}: run[{index}].name: is missing; name every [[run]]");
            };
            check_name(name).map_err(|reason| anyhow!("{shown}: run[{index}].name = {name:?}: {reason}"))?;
            if run.baseline.as_deref() == Some(name) {
                bail!(
                    "{shown}: run[{index}].baseline: {name:?} is itself; name the [[run]] that it is held against, or none"
                );
            }
            if !names.insert(name) {
                bail!(
                    "{shown}: run[{index}].name: there are two [[run]] called {name:?}; give each a name of its own"
                );
            }
        }
        self.check_pools()?;
        let sets = self.set.iter().map(|text| ("set".to_owned(), text));
        let of_runs = self.run.iter().enumerate();
        let of_runs =
            of_runs.flat_map(|(at, run)| run.set.iter().map(move |text| (format!("run[{at}].set"), text)));
        for (key, text) in sets.chain(of_runs) {
            let Some(setting) = key_of(text) else {
                bail!("{shown}: {key}: {text:?} is no setting; write \"key.sub=value\"");
            };
            self.check_setting(&key, setting)?;
        }
        for (setting, _) in &self.grid {
            self.check_setting("grid", setting)?;
        }
        if self.base.is_empty() && self.preset.is_none() {
            let without = |run: &RunTable| run.base.is_empty() && run.preset.is_none();
            if self.run.is_empty() || self.run.iter().any(without) {
                bail!("{shown}: base: is missing; write base = [\"CONFIG.toml\"], relative to this file");
            }
        }
        Ok(())
    }

    fn check_pools(&self) -> anyhow::Result<()> {
        let shown = self.path.display();
        for (pool, members) in &self.pool {
            if members.is_empty() {
                bail!("{shown}: pool.{pool}: is empty; list [[run]]s that have a baseline");
            }
            for (index, member) in members.iter().enumerate() {
                if members[..index].contains(member) {
                    bail!(
                        "{shown}: pool.{pool}: {member:?} is there twice, and would count twice; name it once"
                    );
                }
                match self.run.iter().find(|run| run.name.as_ref() == Some(member)) {
                    Some(run) if run.baseline.is_some() => {}
                    Some(_) => bail!(
                        "{shown}: pool.{pool}: {member:?} has no baseline, and a pool averages differences; give its [[run]] one"
                    ),
                    None => {
                        let names: BTreeSet<&str> =
                            self.run.iter().filter_map(|run| run.name.as_deref()).collect();
                        bail!(
                            "{shown}: pool.{pool}: there is no [[run]] called {member:?}; there are: {}",
                            Vec::from_iter(names).join(", ")
                        );
                    }
                }
            }
        }
        Ok(())
    }

    fn check_setting(&self, key: &str, setting: &str) -> anyhow::Result<()> {
        match OWN.iter().find(|(own, _)| *own == setting) {
            Some((own, instead)) => bail!(
                "{}: {key}: sets `{own}`, which every run of a sweep gets from `{instead}`; leave it out here",
                self.path.display()
            ),
            None => Ok(()),
        }
    }

    /// Returns all runs, ordered by `[[run]]`, grid point and seed.
    pub(crate) fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        let runs = if self.run.is_empty() { vec![RunTable::default()] } else { self.run.clone() };
        let mut entries = Vec::new();
        let mut names = BTreeSet::new();
        for run in &runs {
            for point in self.points() {
                let parts = self.name_at(run.name.as_deref(), &point);
                let name = if parts.is_empty() { self.name.clone() } else { parts };
                let baseline = run.baseline.as_ref().map(|baseline| self.name_at(Some(baseline), &point));
                if !names.insert(name.clone()) {
                    bail!(
                        "{}: grid: two runs would both be called {name:?}; name the [[run]]s so that they differ, or leave out \
                         the value that is there twice",
                        self.path.display()
                    );
                }
                for &seed in &self.seeds {
                    let mut overrides: Vec<String> = self.set.iter().chain(&run.set).cloned().collect();
                    overrides.extend(point.iter().map(|(key, value)| format!("{key}={value}")));
                    overrides.extend(self.overrides.iter().cloned());
                    overrides.push(format!("seed={seed}"));
                    overrides.push(name_argument(&format!("{name}-seed-{seed}")));
                    let source = worlds::source(ConfigSource {
                        preset: run.preset.clone().or_else(|| self.preset.clone()),
                        files: self.base.iter().chain(&run.base).cloned().collect(),
                        overrides,
                        ..ConfigSource::default()
                    });
                    entries.push(Entry {
                        run: run.name.clone(),
                        name: name.clone(),
                        baseline: baseline.clone(),
                        seed,
                        source,
                    });
                }
            }
        }
        Ok(entries)
    }

    pub(crate) fn pools(&self) -> Vec<(String, Vec<String>)> {
        let mut pools = Vec::new();
        for point in self.points() {
            for (name, members) in &self.pool {
                let members = members.iter().map(|member| self.name_at(Some(member), &point)).collect();
                pools.push((self.name_at(Some(name), &point), members));
            }
        }
        pools
    }

    fn name_at(&self, name: Option<&str>, point: &[(&str, &Value)]) -> String {
        let point = point.iter().map(|(key, value)| self.point_name(key, value));
        name.map(str::to_owned).into_iter().chain(point).collect::<Vec<_>>().join("-")
    }

    fn points(&self) -> Vec<Vec<(&str, &Value)>> {
        let mut points: Vec<Vec<(&str, &Value)>> = vec![Vec::new()];
        for (key, values) in &self.grid {
            let mut longer = Vec::with_capacity(points.len() * values.len());
            for point in &points {
                for value in values {
                    let mut point = point.clone();
                    point.push((key.as_str(), value));
                    longer.push(point);
                }
            }
            points = longer;
        }
        points
    }

    /// Formats a grid setting for a folder name, with only the key's last component if that is
    /// unambiguous.
    fn point_name(&self, key: &str, value: &Value) -> String {
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let alone = self.grid.iter().filter(|(other, _)| last(other) == last(key)).count() == 1;
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let text = format!("{}-{value}", if alone { last(key) } else { key.to_owned() });
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        text.chars().map(plain).take(60).collect()
    }
}

fn flatten(table: &Table, outer: &str, found: &mut Vec<(String, Vec<Value>)>) -> Result<(), String> {
    for (key, value) in table {
        let key = if outer.is_empty() { key.clone() } else { format!("{outer}.{key}") };
        match value {
            Value::Table(inner) => flatten(inner, &key, found)?,
            Value::Array(values) if values.is_empty() => {
                return Err(format!("grid: `{key}` has no values; list some, or leave the key out"));
            }
            Value::Array(values) => found.push((key, values.clone())),
            _ => return Err(format!("grid: `{key}` is one value; write a list, or put it under `set`")),
        }
    }
    Ok(())
}

fn key_of(text: &str) -> Option<&str> {
    assignment(text).ok().map(|(key, _)| key)
}

fn is_within(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn check_keys(table: &Table, known: &[&str], file: &str, outer: &str) -> anyhow::Result<()> {
    if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
        let nearest =
            suggest(key, known).map(|nearest| format!(" Did you mean `{nearest}`?")).unwrap_or_default();
        bail!("{file}: {outer}{key}: unknown key.{nearest} There are: {}", known.join(", "));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    check_run_name(name)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.chars().all(plain) {
        return Err("must be a plain folder name of letters, digits, `-`, `_` and `.`".into());
    }
    if ["warm-starts", "logs"].contains(&name) {
        return Err("is a folder that every sweep has; choose another name".into());
    }
    Ok(())
}
