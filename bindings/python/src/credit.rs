//! Computes the advantages of a batch in memory, in the same stages as `turnwise credit`.

use std::collections::{BTreeMap, HashMap};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value, json};
use turnwise_core::{StageRecord, TurnField};
use turnwise_credit::embedding::HashedNgrams;
use turnwise_credit::{CreditConfig, CreditInputs, CreditReport, Embedder, ModelInputs, Pipeline};
use turnwise_methods::{Methods, credit_with};
use turnwise_trajectory_io::{Dump, DumpBatch, DumpError, from_values};

use crate::methods::{caused, known};
use crate::numbers::{buffer, flags, floats, singles};
use crate::refused;
use crate::value::{Place, value};

const BATCH: &str = "batch";

/// Returns every preset with its base, the turn fields it reads, and its credit and objective
/// configs.
#[pyfunction]
pub(crate) fn presets() -> PyResult<String> {
    let methods = known();
    let mut all = Map::new();
    for preset in methods.presets() {
        let credit = methods.credit(preset.name).map_err(refused)?;
        let objective = methods.objective(preset.name).map_err(refused)?;
        let fields = keys(&Pipeline::with_registry(&credit, &methods.credit).map_err(refused)?);
        let entry =
            json!({ "base": preset.base, "credit": credit, "objective": objective, "fields": fields });
        all.insert(preset.name.to_owned(), entry);
    }
    serde_json::to_string(&all).map_err(refused)
}

fn keys(pipeline: &Pipeline) -> Vec<&'static str> {
    let mut keys: Vec<&str> = pipeline.fields().into_iter().map(|(_, field)| field.describe().0).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Returns the turn keys that a preset reads when `switches` override its settings.
#[pyfunction]
pub(crate) fn fields(preset: &str, switches: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Vec<&'static str>> {
    let methods = known();
    let config = configured(&methods, preset, given(switches)?, false).map_err(refused)?;
    Ok(keys(&Pipeline::with_registry(&config, &methods.credit).map_err(refused)?))
}

fn given(switches: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Vec<(Value, String)>> {
    let each = switches.into_iter().map(|(path, switch)| Ok((value(&switch, &Place::root(&path))?, path)));
    each.collect()
}

fn configured(
    methods: &Methods,
    preset: &str,
    switches: Vec<(Value, String)>,
    verl_agent: bool,
) -> Result<CreditConfig, String> {
    let mut config = methods.credit(preset).map_err(|error| error.to_string())?;
    if verl_agent {
        let Some(switched) = config.verl_agent() else {
            return Err(format!(
                "verl_agent: that framework's switches are known for grpo, rloo, gigpo and hgpo, not `{preset}`"
            ));
        };
        config = switched;
    }
    for (switch, path) in switches {
        // An earlier override may have named a custom method.
        methods.credit.spell_out(&mut config).map_err(|error| error.to_string())?;
        config = credit_with(&config, &path, switch).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(config)
}

/// Diagnostics of each step, sorted by name so that the Python dicts have a fixed order.
type Diagnostics = Vec<(u64, BTreeMap<String, f64>)>;

#[derive(Default)]
struct Row {
    advantages: Vec<f64>,
    outliers: Option<Vec<bool>>,
    tokens: Option<(Vec<f64>, Vec<f64>)>,
    explanation: Option<Vec<Vec<StageRecord>>>,
}

/// Returns `(rows, diagnostics of each step)`. A row is a dict with `advantages` and, if the method
/// computes them, `outliers`, `token_advantages`, `token_returns` and `explanation`.
#[pyfunction]
#[pyo3(signature = (batch, preset, switches, verl_agent=false, seed=0, explain=false, vectors=None))]
pub(crate) fn credit<'py>(
    py: Python<'py>,
    batch: &Bound<'py, PyList>,
    preset: &str,
    switches: Vec<(String, Bound<'py, PyAny>)>,
    verl_agent: bool,
    seed: u64,
    explain: bool,
    vectors: Option<HashMap<String, Vec<u8>>>,
) -> PyResult<(Bound<'py, PyList>, Diagnostics)> {
    let Value::Array(lines) = value(batch.as_any(), &Place::root(BATCH))? else {
        return Err(refused("batch must be a list of trajectories"));
    };
    let switches = given(switches)?;
    let vectors = vectors
        .map(|vectors| {
            let each = vectors.into_iter().map(|(text, bytes)| Ok((text, singles(&floats(&bytes)?))));
            each.collect::<PyResult<Vectors>>()
        })
        .transpose()?;
    let (rows, diagnostics) = py
        .detach(|| computed(lines, preset, switches, verl_agent, (seed, explain), vectors))
        .map_err(|error| caused(py, refused(error)))?;
    let list = PyList::empty(py);
    for row in rows {
        let dict = PyDict::new(py);
        dict.set_item("advantages", buffer(py, &row.advantages))?;
        if let Some(outliers) = row.outliers {
            dict.set_item("outliers", flags(py, &outliers))?;
        }
        if let Some((advantages, returns)) = row.tokens {
            dict.set_item("token_advantages", buffer(py, &advantages))?;
            dict.set_item("token_returns", buffer(py, &returns))?;
        }
        if let Some(explanation) = row.explanation {
            dict.set_item("explanation", explained(py, &explanation)?)?;
        }
        list.append(dict)?;
    }
    Ok((list, diagnostics))
}

#[derive(Default)]
struct Vectors(HashMap<String, Vec<f32>>);

impl FromIterator<(String, Vec<f32>)> for Vectors {
    fn from_iter<I: IntoIterator<Item = (String, Vec<f32>)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl Embedder for Vectors {
    fn embed(&self, text: &str) -> Vec<f32> {
        self.0.get(text).cloned().unwrap_or_default()
    }
}

fn computed(
    lines: Vec<Value>,
    preset: &str,
    switches: Vec<(Value, String)>,
    verl_agent: bool,
    (seed, explain): (u64, bool),
    vectors: Option<Vectors>,
) -> Result<(Vec<Row>, Diagnostics), String> {
    let methods = known();
    let config = configured(&methods, preset, switches, verl_agent)?;
    let pipeline = Pipeline::with_registry(&config, &methods.credit).map_err(|error| error.to_string())?;
    let count = lines.len();
    let dump = from_values(BATCH, lines).map_err(|error| indexed(&error))?;
    for step in &dump.batches {
        let origins = step.origins.iter().flatten();
        if let Some((_, origin)) =
            step.batch.trajectories().zip(origins).find(|(found, _)| found.stop.is_failure())
        {
            return Err(format!(
                "{BATCH}[{}]: ended through a failure of its environment or sampler, which says nothing of its turns; leave it out, as \
                 Run.dump does",
                origin.line - 1
            ));
        }
    }
    for (method, field) in pipeline.fields() {
        dump.require(method, field)
            .map_err(|error| format!("{}. {}", indexed(&error), hint(preset, field)))?;
    }
    let (hashed, given) = (HashedNgrams::default(), vectors.unwrap_or_default());
    let embedder: &dyn Embedder = if given.0.is_empty() { &hashed } else { &given };
    let mut rows: Vec<Row> = (0..count).map(|_| Row::default()).collect();
    let mut diagnostics = Vec::new();
    for step in &dump.batches {
        let model_inputs = ModelInputs {
            values: Some(step.values()),
            credits: Some(step.credits()),
            ..ModelInputs::default()
        };
        let inputs = CreditInputs::new(&step.batch)
            .at(seed, step.step)
            .with_embedder(embedder)
            .with_model_inputs(&model_inputs);
        let report = pipeline.report(&inputs, explain).map_err(|error| in_step(&dump, step, &error))?;
        diagnostics.push((step.step, report.diagnostics.clone()));
        place(step, report, &mut rows);
    }
    Ok((rows, diagnostics))
}

fn place(step: &DumpBatch, report: CreditReport, rows: &mut [Row]) {
    let mut explanations: Vec<Vec<Vec<Vec<StageRecord>>>> = report.explanations.into();
    for (group, origins) in step.origins.iter().enumerate() {
        for (index, origin) in origins.iter().enumerate() {
            let tokens = report.tokens.as_ref().map(|tokens| {
                (tokens.advantages[group][index].clone(), tokens.returns[group][index].clone())
            });
            rows[origin.line - 1] = Row {
                advantages: report.advantages[group][index].clone(),
                outliers: report.outliers.as_ref().map(|outliers| outliers.mask[group][index].clone()),
                tokens,
                explanation: explanations
                    .get_mut(group)
                    .and_then(|group| group.get_mut(index))
                    .map(std::mem::take),
            };
        }
    }
}

fn indexed(error: &DumpError) -> String {
    match error {
        DumpError::Line { path, line, reason } => format!("{path}[{}]: {reason}", line - 1),
        other => other.to_string(),
    }
}

fn in_step(dump: &Dump, step: &DumpBatch, error: &turnwise_credit::CreditError) -> String {
    if dump.batches.len() > 1 { format!("step {}: {error}", step.step) } else { error.to_string() }
}

fn hint(preset: &str, field: TurnField) -> String {
    match field {
        TurnField::Credit => format!(
            "`{preset}` takes the credit of every turn from a judge or a trained decomposer; give each turn its \
             `credit`, or use has-progressive"
        ),
        TurnField::Values => {
            format!("`{preset}` needs a critic; give each turn its `values`, or use a group-relative method")
        }
        _ => format!("So `{preset}` cannot be computed from this batch"),
    }
}

fn explained<'py>(py: Python<'py>, turns: &[Vec<StageRecord>]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for stages in turns {
        let turn = PyList::empty(py);
        for stage in stages {
            let facts = PyDict::new(py);
            for (name, number) in &stage.facts.0 {
                facts.set_item(name.as_ref(), number)?;
            }
            let dict = PyDict::new(py);
            dict.set_item("stage", stage.stage.as_ref())?;
            dict.set_item("advantage", stage.advantage)?;
            dict.set_item("facts", facts)?;
            turn.append(dict)?;
        }
        list.append(turn)?;
    }
    Ok(list)
}
