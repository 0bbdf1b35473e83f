//! Credit methods written in Python. A method is a function that receives a batch as flat arrays
//! with one entry per turn and returns one number per turn. The Python module `turnwise._methods`
//! converts byte buffers to these arrays and checks the result.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde_json::{Map, Value};
use turnwise_core::{Batch, MethodTable, PerTurn, Preset, Turn};
use turnwise_credit::{CreditError, CreditInputs, Estimator, Explanation, Refinement};
use turnwise_methods::Methods;

use crate::numbers::{buffer, flags, floats};
use crate::refused;
use crate::value::{Place, value};

#[derive(Clone)]
struct Registered {
    function: Arc<Py<PyAny>>,
    defaults: Map<String, Value>,
    preset: Preset,
    is_estimator: bool,
    texts: bool,
}

static METHODS: RwLock<BTreeMap<&'static str, Registered>> = RwLock::new(BTreeMap::new());

/// Last exception that a Python method raised, kept because a credit error contains only its text.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

/// Registers a function as a method and a preset, both called `name`. A function previously
/// registered as `name` is replaced.
#[pyfunction]
pub(crate) fn register_method(
    name: &str,
    is_estimator: bool,
    function: Py<PyAny>,
    defaults: &Bound<'_, PyDict>,
    texts: bool,
) -> PyResult<()> {
    let Value::Object(defaults) = value(defaults.as_any(), &Place::root(name))? else {
        return Err(refused(format!("{name}: settings must be a dict")));
    };
    let builtin = Methods::builtin();
    if turnwise_credit::EstimatorConfig::KINDS
        .iter()
        .chain(turnwise_credit::RefinementConfig::KINDS)
        .copied()
        .chain(builtin.presets().map(|preset| preset.name))
        .any(|known| known == name)
    {
        return Err(refused(format!(
            "{name}: turnwise has a method of this name; give another, name=\"...\""
        )));
    }
    let mut methods = METHODS.write().unwrap_or_else(PoisonError::into_inner);
    // Registries need `'static` names.
    let leaked = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let known = methods.get(name).map(|known| (known.preset, known.is_estimator));
    let preset = match known {
        Some((preset, was_estimator)) if was_estimator == is_estimator => preset,
        _ => {
            let name = leaked(name.to_owned());
            let kind = toml::Value::from(name).to_string();
            if is_estimator {
                Preset::new(name, leaked(format!("[credit]\nestimator = {{ kind = {kind} }}\n")))
            } else {
                Preset::on("grpo", name, leaked(format!("[[credit.refinements]]\nkind = {kind}\n")))
            }
        }
    };
    let function = Arc::new(function);
    methods.insert(preset.name, Registered { function, defaults, preset, is_estimator, texts });
    Ok(())
}

pub(crate) fn known() -> Methods {
    let mut methods = Methods::builtin();
    for (&name, registered) in METHODS.read().unwrap_or_else(PoisonError::into_inner).iter() {
        let credit = std::mem::take(&mut methods.credit).with_preset(registered.preset);
        let registered = registered.clone();
        methods.credit = if registered.is_estimator {
            credit.with_estimator_table(name, move |table| {
                let (table, method) = made(name, &registered, table)?;
                Ok((table, Box::new(method) as Box<dyn Estimator>))
            })
        } else {
            credit.with_refinement_table(name, move |table| {
                let (table, method) = made(name, &registered, table)?;
                Ok((table, Box::new(method) as Box<dyn Refinement>))
            })
        };
    }
    methods
}

fn made(
    name: &'static str,
    registered: &Registered,
    table: &MethodTable,
) -> Result<(MethodTable, PythonMethod), CreditError> {
    let fail = |reason: String| CreditError::Setting { method: name, reason };
    let mut settings = registered.defaults.clone();
    for (key, given) in &table.settings {
        let Some(setting) = settings.get_mut(key) else {
            let known = registered.defaults.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(fail(format!("unknown field `{key}`, expected one of {known}")));
        };
        *setting = given.clone();
    }
    let table = MethodTable { kind: name.to_owned(), settings: settings.clone() };
    let (function, texts) = (Arc::clone(&registered.function), registered.texts);
    Ok((table, PythonMethod { name, function, settings, texts }))
}

struct PythonMethod {
    name: &'static str,
    function: Arc<Py<PyAny>>,
    settings: Map<String, Value>,
    texts: bool,
}

impl PythonMethod {
    fn call(
        &self,
        batch: &Batch,
        before: Option<&PerTurn<f64>>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        Python::attach(|py| self.called(py, batch, before, explanation)).map_err(|error| {
            let reason = Python::attach(|py| described(py, &error));
            *RAISED.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            CreditError::Setting { method: self.name, reason }
        })
    }

    fn called(
        &self,
        py: Python<'_>,
        batch: &Batch,
        before: Option<&PerTurn<f64>>,
        explanation: &mut Explanation,
    ) -> PyResult<PerTurn<f64>> {
        let arrays = arrays(py, batch, self.texts)?;
        let before = before.map(|before| buffer(py, &before.values().copied().collect::<Vec<_>>()));
        let settings = serde_json::to_string(&self.settings).map_err(refused)?;
        let call = py.import("turnwise._methods")?.getattr("called")?;
        let (advantages, facts): (Bound<'_, PyBytes>, Vec<(String, Bound<'_, PyBytes>)>) =
            call.call1((self.name, self.function.as_ref(), arrays, before, settings))?.extract()?;
        let mut numbers = floats(advantages.as_bytes())?.into_iter();
        if explanation.is_on() {
            for (name, values) in facts {
                let mut values = floats(values.as_bytes())?.into_iter();
                let table = PerTurn::from_fn(batch, |_, _, _| values.next().unwrap_or(f64::NAN));
                for (group, values) in table.groups().enumerate() {
                    let name = Cow::<'static, str>::Owned(name.clone());
                    explanation.facts(group, values, |_, _, &value| vec![(name.clone(), value)]);
                }
            }
        }
        Ok(PerTurn::from_fn(batch, |_, _, _| numbers.next().unwrap_or(f64::NAN)))
    }
}

fn described(py: Python<'_>, error: &PyErr) -> String {
    let place = || -> PyResult<String> {
        let traceback = py.import("traceback")?;
        let frames = traceback.call_method1("extract_tb", (error.traceback(py),))?;
        let last = frames.get_item(-1)?;
        let file: String = last.getattr("filename")?.extract()?;
        let (line, name): (u32, String) =
            (last.getattr("lineno")?.extract()?, last.getattr("name")?.extract()?);
        Ok(format!(" ({file}, line {line}, in {name})"))
    };
    format!("{error}{}", place().unwrap_or_default())
}

/// Sets a failed method's exception as the cause of an error.
pub(crate) fn caused(py: Python<'_>, error: PyErr) -> PyErr {
    let raised = RAISED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if raised.is_some() {
        error.set_cause(py, raised);
    }
    error
}

impl Estimator for PythonMethod {
    fn name(&self) -> &'static str {
        self.name
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        self.call(inputs.batch, None, explanation)
    }
}

impl Refinement for PythonMethod {
    fn name(&self) -> &'static str {
        self.name
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        *advantages = self.call(inputs.batch, Some(advantages), explanation)?;
        Ok(())
    }
}

fn arrays<'py>(py: Python<'py>, batch: &Batch, texts: bool) -> PyResult<Bound<'py, PyDict>> {
    let turns: usize = batch.trajectories().map(|trajectory| trajectory.turns.len()).sum();
    let mut whole: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for name in ["group", "trajectory", "turn", "state", "tokens"] {
        whole.insert(name, Vec::with_capacity(turns));
    }
    let mut add = |name: &'static str, number: usize| {
        if let Some(numbers) = whole.get_mut(name) {
            numbers.push(number as f64);
        }
    };
    let (mut valid, mut success) = (Vec::with_capacity(turns), Vec::with_capacity(turns));
    let mut number = 0;
    for (index, group) in batch.groups.iter().enumerate() {
        let mut states: HashMap<&str, usize> = HashMap::new();
        for trajectory in &group.trajectories {
            for (place, turn) in trajectory.turns.iter().enumerate() {
                let next = states.len();
                add("group", index);
                add("trajectory", number);
                add("turn", place);
                add("state", *states.entry(turn.state_key()).or_insert(next));
                add("tokens", turn.response_ids.len());
                valid.push(turn.valid);
                success.push(trajectory.success);
            }
            number += 1;
        }
    }
    let every = || batch.trajectories().flat_map(|trajectory| &trajectory.turns);
    let of = |number: fn(&Turn) -> f64| every().map(number).collect::<Vec<f64>>();
    let logprob = |turn: &Turn| {
        if turn.old_logprobs.is_empty() {
            f64::NAN
        } else {
            turn.old_logprobs.iter().copied().map(f64::from).sum()
        }
    };
    let numbers = [
        ("reward", of(Turn::credited_reward)),
        ("entropy", of(|turn| turn.mean_entropy().unwrap_or(f64::NAN))),
        ("logprob", of(logprob)),
        ("progress", of(|turn| turn.progress.unwrap_or(f64::NAN))),
    ];
    let found = PyDict::new(py);
    for (name, numbers) in whole.into_iter().chain(numbers) {
        found.set_item(name, buffer(py, &numbers))?;
    }
    found.set_item("valid", flags(py, &valid))?;
    found.set_item("success", flags(py, &success))?;
    if texts {
        found.set_item("observations", PyList::new(py, every().map(|turn| &turn.observation))?)?;
        found.set_item("actions", PyList::new(py, every().map(|turn| &turn.action))?)?;
    }
    Ok(found)
}
