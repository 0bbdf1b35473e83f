//! Scores a method's advantages against the true advantages in a file of
//! `turnwise benchmark credit`.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use serde_json::json;
use turnwise_benchmark::{
    Against, Bootstrap, Compared, Difference, ScoreSettings, ScoredTurns, TruthLine, score, summarise,
};
use turnwise_core::SCHEMA_VERSION;

use crate::files::failed;
use crate::numbers::floats;
use crate::refused;

/// Returns JSON with `truth` (a summary of the true advantages), `score` and, if a baseline is
/// given, `difference`. `method` and `baseline` are each a name and the advantages: one array per
/// trajectory, in file order.
#[pyfunction]
#[pyo3(signature = (path, method, baseline=None, resamples=1000, seed=0))]
pub(crate) fn score_truth(
    py: Python<'_>,
    path: PathBuf,
    method: (String, Vec<Vec<u8>>),
    baseline: Option<(String, Vec<Vec<u8>>)>,
    resamples: usize,
    seed: u64,
) -> PyResult<String> {
    py.detach(|| {
        let turns = ScoredTurns::new(read(&path)?);
        let settings = ScoreSettings { bootstrap: Bootstrap { resamples, seed }, ..ScoreSettings::default() };
        let advantages = |(name, rows): &(String, Vec<Vec<u8>>)| {
            let rows = rows.iter().map(|row| floats(row)).collect::<PyResult<Vec<Vec<f64>>>>()?;
            turns.in_order(&rows).ok_or_else(|| {
                refused(format!(
                    "{name}: a turn of {} has no advantage; one for every turn is expected",
                    path.display()
                ))
            })
        };
        let own = advantages(&method)?;
        let compared = |values: &[f64]| Compared::new(&turns, values, Against::All, &settings);
        let difference = match &baseline {
            Some(baseline) => {
                let base = compared(&advantages(baseline)?);
                Some(Difference::new((&method.0, &compared(&own)), (&baseline.0, &base), &settings))
            }
            None => None,
        };
        let found = json!({
            "truth": summarise(&turns, &settings),
            "score": score(&method.0, &turns, &own, Against::All, &settings),
            "difference": difference,
        });
        serde_json::to_string(&found).map_err(refused)
    })
}

fn read(path: &Path) -> PyResult<Vec<TruthLine>> {
    let file = turnwise_files::open(path).map_err(|error| failed(path, &error))?;
    let mut lines = Vec::new();
    for (index, line) in turnwise_files::lines(file).enumerate() {
        let line = line.map_err(|error| failed(path, &error))?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |reason: String| refused(format!("{}: line {}: {reason}", path.display(), index + 1));
        let line: TruthLine = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
        line.check().map_err(wrong)?;
        let version = line.trajectory.schema_version;
        if !(1..=SCHEMA_VERSION).contains(&version) {
            return Err(wrong(format!(
                "schema_version is {version}; this package reads 1 to {SCHEMA_VERSION}"
            )));
        }
        lines.push(line);
    }
    if lines.is_empty() {
        return Err(refused(format!(
            "{}: has no trajectory; make one with `turnwise benchmark credit`",
            path.display()
        )));
    }
    Ok(lines)
}
