//! The configs that were in use before a resume changed settings: `config-before-step-000012.toml`,
//! or `config-before-step-000005-2.toml` for a second change.

use std::fs;
use std::path::PathBuf;

use crate::TrainError;
use crate::record::directory::{Phase, Position, RunDirectory};

fn change_of(name: &str) -> Option<(u32, Position)> {
    let label = name.strip_prefix("config-before-")?.strip_suffix(".toml")?;
    match label.split('-').collect::<Vec<_>>().as_slice() {
        [_, _] => Some((1, label.parse().ok()?)),
        [phase, step, number] => Some((number.parse().ok()?, format!("{phase}-{step}").parse().ok()?)),
        _ => None,
    }
}

fn changes(run: &RunDirectory) -> Result<Vec<(u32, Position, PathBuf)>, TrainError> {
    let io = |error| TrainError::io(run.root(), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(run.root()).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let change = path.file_name().and_then(|name| change_of(name.to_str()?));
        found.extend(change.map(|(number, position)| (number, position, path)));
    }
    found.sort();
    Ok(found)
}

pub(crate) fn keep(run: &RunDirectory, position: Position, config: &str) -> Result<String, TrainError> {
    let label = position.label();
    let name = match changes(run)?.last() {
        None => format!("config-before-{label}.toml"),
        Some((number, ..)) => format!("config-before-{label}-{}.toml", number + 1),
    };
    run.write(&name, config.as_bytes())?;
    Ok(name)
}

/// Returns the configs that were used for the first `steps` SFT steps.
pub(crate) fn of_warm_start(run: &RunDirectory, steps: u64) -> Result<Vec<PathBuf>, TrainError> {
    let inside = |at: &Position| at.phase == Phase::Sft && (1..steps).contains(&at.step);
    let mut parts: Vec<Position> = changes(run)?.into_iter().map(|(_, at, _)| at).filter(inside).collect();
    parts.push(Position { phase: Phase::Sft, step: steps });
    let mut configs = parts.into_iter().map(|end| of_position(run, end)).collect::<Result<Vec<_>, _>>()?;
    configs.sort();
    configs.dedup();
    Ok(configs)
}

/// Returns the config that was used up to a position. If a resume repeated steps with other
/// settings, returns the config of the repetition.
///
/// # Errors
/// Fails on I/O errors.
pub fn of_position(run: &RunDirectory, position: Position) -> Result<PathBuf, TrainError> {
    let mut config = run.path("config.toml");
    for (_, change, before) in changes(run)?.into_iter().rev() {
        if position > change {
            break;
        }
        config = before;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configs_of_the_warm_start_are_those_before_changes_of_reinforcement_learning() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        assert_eq!(of_warm_start(&run, 300).unwrap(), [run.path("config.toml")]);
        let write = |label: &str, config: &str| keep(&run, label.parse().unwrap(), config).unwrap();
        let of = |steps: u64| {
            let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_else(|_| "now".into());
            of_warm_start(&run, steps).unwrap().into_iter().map(read).collect::<Vec<_>>()
        };
        assert_eq!(write("sft-100", "first"), "config-before-sft-000100.toml");
        assert_eq!(of(300), ["first", "now"], "a third of it was done with other settings");
        assert_eq!(of(100), ["first"], "its end is where they changed");
        assert_eq!(write("step-5", "second"), "config-before-step-000005-2.toml");
        assert_eq!(write("step-2", "third"), "config-before-step-000002-3.toml");
        assert_eq!(write("step-2", "fourth"), "config-before-step-000002-4.toml");
        assert_eq!(of(300), ["first", "second"]);
        assert_eq!(write("sft-0", "fifth"), "config-before-sft-000000-5.toml");
        assert_eq!(of(300), ["now"]);
        assert_eq!(change_of("config-before-step-12.toml.part"), None);
        assert_eq!(change_of("config-before-step-1-2-3.toml"), None);
    }

    #[test]
    fn a_step_has_the_config_that_it_was_done_with_last() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        let of = |label: &str| {
            let path = of_position(&run, label.parse().unwrap()).unwrap();
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(of("step-7"), "config.toml");
        for label in ["step-4", "step-8", "step-6"] {
            keep(&run, label.parse().unwrap(), "").unwrap();
        }
        // 7 and 8 were repeated after the third change.
        assert_eq!(
            (of("step-4"), of("step-5")),
            ("config-before-step-000004.toml".into(), "config-before-step-000008-2.toml".into())
        );
        assert_eq!(
            (of("step-6"), of("step-7")),
            ("config-before-step-000008-2.toml".into(), "config.toml".into())
        );
    }
}
