use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyList};
use serde_json::Value;
use turnwise_core::{LOG_RATIO_BOUNDS, LossMetrics, ObjectiveError, TurnSpan};
use turnwise_methods::{Methods, objective_with};
use turnwise_objective::{
    Advantages, BiasNorm, BiasSum, FullKls, Gradient, KlEstimator, Loss, MaskedLogprobs, ObjectiveBatch,
    ObjectiveConfig, ObjectiveSequence, PolicyObjective, Registry, SelectiveConfig, SelectiveObjective,
    SupervisedObjective, ValueConfig, ValueObjective,
};

use crate::numbers::{buffer, floats, singles};
use crate::refused;
use crate::value::{Place, value};

/// A sequence from Python, with arrays over the response tokens of all spans.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Sequence<'py> {
    /// Number of response tokens in each span.
    spans: Vec<usize>,
    logprobs: Bound<'py, PyByteArray>,
    old_logprobs: Bound<'py, PyByteArray>,
    advantages: Bound<'py, PyByteArray>,
    /// True if `advantages` has one entry per span, false if it has one per response token.
    per_span: bool,
    mask: Option<Bound<'py, PyByteArray>>,
    ref_logprobs: Option<Bound<'py, PyByteArray>>,
    entropies: Option<Bound<'py, PyByteArray>>,
    reference_kls: Option<Bound<'py, PyByteArray>>,
}

struct Inputs {
    logprobs: Vec<f64>,
    entropies: Vec<f64>,
    reference_kls: Vec<f64>,
}

impl Sequence<'_> {
    fn read(&self) -> PyResult<(ObjectiveSequence, Inputs)> {
        let numbers = |array: &Bound<'_, PyByteArray>| floats(&array.to_vec());
        let optional = |array: &Option<Bound<'_, PyByteArray>>| array.as_ref().map(numbers).transpose();
        let advantages = numbers(&self.advantages)?;
        let sequence = ObjectiveSequence {
            spans: spans(&self.spans),
            old_logprobs: singles(&numbers(&self.old_logprobs)?),
            ref_logprobs: optional(&self.ref_logprobs)?.map(|values| singles(&values)),
            advantages: if self.per_span {
                Advantages::PerSpan(advantages)
            } else {
                Advantages::PerToken(advantages)
            },
            success: false,
            mask: self.mask.as_ref().map(|mask| mask.to_vec().into_iter().map(|flag| flag != 0).collect()),
        };
        let inputs = Inputs {
            logprobs: numbers(&self.logprobs)?,
            entropies: optional(&self.entropies)?.unwrap_or_default(),
            reference_kls: optional(&self.reference_kls)?.unwrap_or_default(),
        };
        Ok((sequence, inputs))
    }
}

fn spans(lengths: &[usize]) -> Vec<TurnSpan> {
    let mut start = 0;
    let next = |(turn, &length): (usize, &usize)| {
        let span = TurnSpan { turn, start, end: start + length };
        start = span.end;
        span
    };
    lengths.iter().enumerate().map(next).collect()
}

fn config(preset: &str, switches: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<ObjectiveConfig> {
    let mut config = Methods::builtin().objective(preset).map_err(refused)?;
    for (path, switch) in switches {
        let switch = value(&switch, &Place::root(&path))?;
        config =
            objective_with(&config, &path, switch).map_err(|error| refused(format!("{path}: {error}")))?;
    }
    Ok(config)
}

/// Computes the policy objective. Returns a dict with `value`, `d_logprobs`, `d_entropies`,
/// `d_reference_kls`, `metrics`, `settings` and, if the gradient is normalized, `normalization`.
/// Each gradient is a list with one array per sequence.
#[pyfunction]
pub(crate) fn policy_loss<'py>(
    py: Python<'py>,
    sequences: Vec<Sequence<'py>>,
    preset: &str,
    switches: Vec<(String, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let config = config(preset, switches)?;
    let read = sequences.iter().map(Sequence::read).collect::<PyResult<Vec<_>>>()?;
    let (sequences, inputs): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    let found = py.detach(|| found(&config, sequences, &inputs)).map_err(refused)?;
    let dict = PyDict::new(py);
    dict.set_item("value", found.value)?;
    let arrays = |of: fn(&Gradient) -> &Vec<f64>| {
        found.gradients.iter().map(|gradient| buffer(py, of(gradient))).collect::<Vec<_>>()
    };
    dict.set_item("d_logprobs", PyList::new(py, arrays(|gradient| &gradient.d_logprobs))?)?;
    let any =
        |of: fn(&Gradient) -> &Vec<f64>| found.gradients.iter().any(|gradient| !of(gradient).is_empty());
    if any(|gradient| &gradient.d_entropies) {
        dict.set_item("d_entropies", PyList::new(py, arrays(|gradient| &gradient.d_entropies))?)?;
    }
    if any(|gradient| &gradient.d_reference_kls) {
        dict.set_item("d_reference_kls", PyList::new(py, arrays(|gradient| &gradient.d_reference_kls))?)?;
    }
    dict.set_item("metrics", metrics(py, &found.metrics)?)?;
    dict.set_item("settings", serde_json::to_string(&found.settings).map_err(refused)?)?;
    if let Some(bias) = found.bias {
        let entry = PyDict::new(py);
        entry.set_item("token_norm", bias.sum.token_norm())?;
        entry.set_item("scalar_norm", bias.sum.scalar_norm())?;
        entry.set_item("clipped", bias.sum.clipped)?;
        entry.set_item("factor", bias.factor)?;
        let slopes = bias.d_logprobs.iter().map(|slopes| buffer(py, slopes));
        entry.set_item("d_logprobs", PyList::new(py, slopes.collect::<Vec<_>>())?)?;
        dict.set_item("normalization", entry)?;
    }
    Ok(dict)
}

struct Bias {
    sum: BiasSum,
    d_logprobs: Vec<Vec<f64>>,
    /// Factor of the gradient; `None` if it depends on the weight gradient's norm.
    factor: Option<f64>,
}

struct Found {
    value: f64,
    gradients: Vec<Gradient>,
    metrics: LossMetrics,
    settings: ObjectiveConfig,
    bias: Option<Bias>,
}

fn found(
    config: &ObjectiveConfig,
    sequences: Vec<ObjectiveSequence>,
    inputs: &[Inputs],
) -> Result<Found, ObjectiveError> {
    // The loss may change the KL coefficient.
    let settings = Loss::new(config, &Registry::builtin())?.config().clone();
    let policy = PolicyObjective::new(&settings, ObjectiveBatch::new(sequences))?;
    let mut gradients = Vec::with_capacity(inputs.len());
    let mut metrics = LossMetrics::default();
    for (index, input) in inputs.iter().enumerate() {
        let gradient =
            policy.gradient_with(index, &input.logprobs, &input.entropies, &input.reference_kls)?;
        metrics.add(&gradient.metrics);
        gradients.push(gradient);
    }
    let bias = settings.normalization.as_ref().map(|normalization| {
        let mut sum = BiasSum::default();
        let mut d_logprobs = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter().enumerate() {
            let bias = policy.clipping_bias(index, &input.logprobs)?;
            sum.add(&bias);
            d_logprobs.push(bias.d_logprobs);
        }
        let factor = match normalization.norm {
            BiasNorm::Parameter => None,
            BiasNorm::Token => Some(normalization.factor(sum.token_norm())?),
            BiasNorm::Scalar => Some(normalization.factor(sum.scalar_norm())?),
        };
        Ok(Bias { sum, d_logprobs, factor })
    });
    let value = gradients.iter().map(|gradient| gradient.loss).sum();
    Ok(Found { value, gradients, metrics, bias: bias.transpose()?, settings })
}

fn metrics<'py>(py: Python<'py>, metrics: &LossMetrics) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, number) in [
        ("tokens", metrics.tokens),
        ("policy_loss", metrics.policy_loss),
        ("kl_loss", metrics.kl_loss),
        ("entropy_loss", metrics.entropy_loss),
        ("clipped_low", metrics.clipped_low),
        ("clipped_high", metrics.clipped_high),
        ("clip_fraction", metrics.clip_fraction()),
        ("approx_kl", metrics.mean(metrics.approx_kl)),
        ("reference_kl", metrics.mean(metrics.reference_kl)),
        ("ratio", metrics.mean(metrics.ratio)),
        ("max_log_ratio", metrics.max_log_ratio),
    ] {
        dict.set_item(name, number)?;
    }
    for (tokens, bound) in metrics.log_ratio_above.iter().zip(LOG_RATIO_BOUNDS) {
        dict.set_item(format!("log_ratio_above_{bound}"), metrics.mean(*tokens))?;
    }
    Ok(dict)
}

/// Computes the critic's clipped loss:
/// `(value, gradients by sequence, fraction of clipped tokens)`.
#[pyfunction]
pub(crate) fn value_loss(
    py: Python<'_>,
    values: Vec<Vec<u8>>,
    old_values: Vec<Vec<u8>>,
    returns: Vec<Vec<u8>>,
    masks: Option<Vec<Vec<bool>>>,
    clip: f64,
) -> PyResult<(f64, Vec<Bound<'_, PyByteArray>>, f64)> {
    let rows = |rows: &[Vec<u8>]| rows.iter().map(|row| floats(row)).collect::<PyResult<Vec<_>>>();
    let (values, old_values, returns) = (rows(&values)?, rows(&old_values)?, rows(&returns)?);
    let gradients = py
        .detach(|| {
            let old_values = old_values.iter().map(Vec::as_slice).collect();
            let returns = returns.iter().map(Vec::as_slice).collect();
            let masks = masks.iter().flatten().map(Vec::as_slice).collect();
            let objective = ValueObjective::new(&ValueConfig { clip }, old_values, returns, masks)?;
            let each = values.iter().enumerate().map(|(index, values)| objective.gradient(index, values));
            each.collect::<Result<Vec<_>, ObjectiveError>>()
        })
        .map_err(refused)?;
    let (mut loss, mut clipped, mut tokens) = (0.0, 0.0, 0.0);
    for gradient in &gradients {
        loss += gradient.loss;
        clipped += gradient.clipped;
        tokens += gradient.tokens;
    }
    let slopes = gradients.iter().map(|gradient| buffer(py, &gradient.d_values)).collect();
    Ok((loss, slopes, if tokens > 0.0 { clipped / tokens } else { 0.0 }))
}

/// Computes the weighted cross-entropy: `(value, gradients by sequence)`.
#[pyfunction]
pub(crate) fn supervised_loss(
    py: Python<'_>,
    logprobs: Vec<Vec<u8>>,
    weights: Vec<Vec<u8>>,
) -> PyResult<(f64, Vec<Bound<'_, PyByteArray>>)> {
    let read = |arrays: &[Vec<u8>]| arrays.iter().map(|array| floats(array)).collect::<PyResult<Vec<_>>>();
    let logprobs = read(&logprobs)?;
    let weights = read(&weights)?;
    let gradients = py
        .detach(|| {
            let objective = SupervisedObjective::new(weights)?;
            let each = logprobs.iter().enumerate().map(|(index, values)| objective.gradient(index, values));
            each.collect::<Result<Vec<_>, ObjectiveError>>()
        })
        .map_err(refused)?;
    let slopes = gradients.iter().map(|gradient| buffer(py, &gradient.d_logprobs)).collect();
    Ok((gradients.iter().map(|gradient| gradient.loss).sum(), slopes))
}

/// Computes STAPO's loss of outlier turns. Returns a dict with `value`, `d_first`, `d_second`,
/// `kl`, `reference_kl`, `outliers`. `arrays` holds, for each sequence, either two arrays of KLs or
/// three arrays of log-probs (full, masked, reference).
#[pyfunction]
pub(crate) fn selective_loss<'py>(
    py: Python<'py>,
    lengths: Vec<Vec<usize>>,
    outliers: Vec<Vec<bool>>,
    arrays: Vec<Vec<Vec<u8>>>,
    switches: Vec<(String, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut config =
        ObjectiveConfig { selective: Some(SelectiveConfig::default()), ..ObjectiveConfig::default() };
    for (path, switch) in switches {
        let switch: Value = value(&switch, &Place::root(&path))?;
        config = objective_with(&config, &format!("selective.{path}"), switch)
            .map_err(|error| refused(format!("{path}: {error}")))?;
    }
    let config = config.selective.unwrap_or_default();
    let sequences = lengths
        .iter()
        .zip(outliers)
        .map(|(lengths, outliers)| spans(lengths).into_iter().zip(outliers).collect())
        .collect();
    let read = |arrays: &Vec<Vec<u8>>| arrays.iter().map(|array| floats(array)).collect::<PyResult<Vec<_>>>();
    let arrays = arrays.iter().map(read).collect::<PyResult<Vec<_>>>()?;
    let gradients = py
        .detach(|| {
            let objective = SelectiveObjective::new(&config, sequences)?;
            let each = arrays.iter().enumerate().map(|(index, arrays)| match arrays.as_slice() {
                [kl, reference_kl] => objective.from_kls(index, FullKls { kl, reference_kl }),
                [full, masked, reference] => {
                    objective.from_logprobs(index, MaskedLogprobs { full, masked, reference })
                }
                other => Err(ObjectiveError::Setting(format!("{} arrays; 2 or 3 are expected", other.len()))),
            });
            each.collect::<Result<Vec<_>, ObjectiveError>>()
        })
        .map_err(refused)?;
    let dict = PyDict::new(py);
    dict.set_item("value", gradients.iter().map(|gradient| gradient.loss).sum::<f64>())?;
    let first = gradients.iter().map(|gradient| buffer(py, &gradient.d_first)).collect::<Vec<_>>();
    let second = gradients.iter().map(|gradient| buffer(py, &gradient.d_second)).collect::<Vec<_>>();
    dict.set_item("d_first", PyList::new(py, first)?)?;
    dict.set_item("d_second", PyList::new(py, second)?)?;
    dict.set_item("kl", gradients.iter().map(|gradient| gradient.kl).sum::<f64>())?;
    dict.set_item("reference_kl", gradients.iter().map(|gradient| gradient.reference_kl).sum::<f64>())?;
    dict.set_item("outliers", gradients.iter().map(|gradient| gradient.outliers).sum::<usize>())?;
    Ok(dict)
}

/// Returns estimates of the KL to a reference policy at the sampled tokens, and their derivatives
/// with respect to `logprobs`.
#[pyfunction]
pub(crate) fn kl_estimate<'py>(
    py: Python<'py>,
    estimator: &str,
    logprobs: &[u8],
    ref_logprobs: &[u8],
) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
    let estimator = match estimator {
        "k1" => KlEstimator::K1,
        "k2" => KlEstimator::K2,
        "k3" => KlEstimator::K3,
        other => return Err(refused(format!("estimator is {other:?}; there are k1, k2 and k3"))),
    };
    let pairs = floats(logprobs)?.into_iter().zip(floats(ref_logprobs)?);
    let (values, slopes): (Vec<f64>, Vec<f64>) = pairs
        .map(|(logprob, reference)| turnwise_objective::kl_estimate(estimator, logprob, reference))
        .unzip();
    Ok((buffer(py, &values), buffer(py, &slopes)))
}

#[pyfunction]
pub(crate) fn token_weights<'py>(
    py: Python<'py>,
    loss_agg_mode: &str,
    lengths: Vec<Vec<usize>>,
    masks: Option<Vec<Vec<bool>>>,
) -> PyResult<Vec<Bound<'py, PyByteArray>>> {
    let loss_agg_mode = serde_json::from_value(Value::from(loss_agg_mode))
        .map_err(|error| refused(format!("loss_agg_mode: {error}")))?;
    let sequences = lengths.iter().enumerate().map(|(index, lengths)| {
        let tokens = lengths.iter().sum();
        let mask = masks.as_ref().and_then(|masks| masks.get(index)).cloned();
        ObjectiveSequence {
            mask,
            ..ObjectiveSequence::new(spans(lengths), vec![0.0; tokens], vec![0.0; lengths.len()])
        }
    });
    let batch = ObjectiveBatch::new(sequences.collect());
    batch.check(&ObjectiveConfig::default()).map_err(refused)?;
    let weights = turnwise_objective::token_weights(loss_agg_mode, &batch);
    Ok(weights.iter().map(|weights| buffer(py, weights)).collect())
}
