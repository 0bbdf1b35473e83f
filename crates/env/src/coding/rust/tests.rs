//! Tests that need `rustc` and sandbox support in the kernel; skipped otherwise.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use turnwise_core::{Action, Environment as _};
use turnwise_sandbox::Limits;

use super::super::language::Language;
use super::super::task::CodingTask;
use super::super::tests::{call, coding, every_task, open, play, seed};
use super::super::workshop::Workshop;
use super::super::{CodingGenerator, CodingSettings};
use super::libraries::{Defect, LIBRARIES, Library, Record};
use crate::demonstration::DemonstrationRequest;

fn workshop() -> Option<Workshop> {
    match Workshop::new(&[Language::Rust]) {
        Ok(workshop) => Some(workshop),
        Err(error) => {
            assert!(std::env::var_os("TURNWISE_REQUIRE_SANDBOX").is_none(), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

fn settings(libraries: &[&str], per_library: usize) -> CodingSettings {
    let libraries = libraries.iter().map(|name| (*name).to_owned()).collect();
    let languages = vec![Language::Rust];
    let generator = CodingGenerator { per_library, libraries, languages, ..CodingGenerator::default() };
    CodingSettings { generator, ..CodingSettings::default() }
}

fn evaluate(workshop: &Workshop, library: &Library, defect: Option<&Defect>) -> Vec<String> {
    let text = |path: &str, source: &str| match defect {
        Some(defect) if defect.path == path => defect.mutant.text.clone(),
        _ => source.to_owned(),
    };
    let files =
        library.sources.iter().map(|(path, source)| ((*path).to_owned(), text(path, source).into_bytes()));
    // Only endless loops exceed this.
    let limits = Limits { wall: Duration::from_mins(1), cpu: Duration::from_secs(2), ..Limits::default() };
    workshop
        .rust_values(files.collect(), library.name, &library.calls(), &limits)
        .unwrap()
        .unwrap_or_default()
}

/// `None` if all calls pass or the defect does not compile.
fn failing(values: &[String], right: &[String]) -> Option<(usize, Option<String>)> {
    let place = right.iter().enumerate().find(|(place, value)| values.get(*place) != Some(value))?.0;
    let compiled = !values.is_empty();
    compiled.then(|| (place, values.get(place).cloned()))
}

/// Set `TURNWISE_WRITE_DEFECTS` to a library's name, or to `all`, to write the records; `all` takes
/// some minutes.
#[test]
fn recorded_defects_are_those_that_the_compiler_finds() {
    let Some(workshop) = workshop() else { return };
    let write = std::env::var("TURNWISE_WRITE_DEFECTS").ok();
    for library in &LIBRARIES {
        let defects = library.defects();
        let record = library.record();
        let right = evaluate(&workshop, library, None);
        assert_eq!(right.len(), library.calls().len(), "{}", library.name);
        let found = |defect: &Defect| failing(&evaluate(&workshop, library, Some(defect)), &right);
        if let Some(name) = &write {
            if name != "all" && name != library.name {
                continue;
            }
            let found = defects.par_iter().map(|defect| Some((defect.digest.clone(), found(defect)?)));
            let failing = found.flatten().collect();
            let record = Record { values: right.clone(), failing };
            println!("{}: {} of {} defects", library.name, record.failing.len(), defects.len());
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/coding/libraries/rust");
            std::fs::write(format!("{folder}/{}/record", library.name), record.text()).unwrap();
            continue;
        }
        assert_eq!(record.values, right, "{}", library.name);
        assert!(record.failing.len() >= 20, "{}: {}", library.name, record.failing.len());
        let known: BTreeSet<&str> = defects.iter().map(|defect| defect.digest.as_str()).collect();
        assert!(record.failing.keys().all(|digest| known.contains(digest.as_str())), "{}", library.name);
        for defect in defects.iter().step_by(20) {
            assert_eq!(
                record.failing.get(&defect.digest),
                found(defect).as_ref(),
                "{} {defect:?}",
                library.name
            );
        }
    }
}

#[test]
fn the_expert_solves_rust_tasks_and_submitting_at_once_does_not() {
    if workshop().is_none() {
        return;
    }
    let settings = settings(&[], 1);
    let (world, _) = open(&settings);
    let set = coding(&settings);
    assert_eq!(set.all().len(), LIBRARIES.len());
    for split in ["train", "valid", "test"] {
        let count = set.split(split).unwrap().len();
        let request = DemonstrationRequest { split, count, max_turns: 20, ..DemonstrationRequest::default() };
        let shown = world.demonstrations(&request).unwrap().unwrap();
        assert_eq!((shown.episodes.len(), shown.dropped), (count, 0));
        for episode in &shown.episodes {
            assert!(episode.turns[3].observation.contains("test result: ok"), "{episode:?}");
        }
    }
    for task in every_task(&set) {
        let begun = Instant::now();
        let steps = play(&set, &task, &["run({\"command\":\"sh test.sh\"})".to_owned(), "submit({})".into()]);
        println!("{}: tests and checks took {:?}", task.id, begun.elapsed());
        let seen = steps[0].observation.text().into_owned();
        assert!(seen.contains("test result: FAILED") || seen.contains("killed after"), "{}: {seen}", task.id);
        assert!(steps[1].terminated && !steps[1].success && steps[1].reward == 0.0, "{}", task.id);
    }
}

#[test]
fn defects_of_a_line_are_in_one_split_and_libraries_have_several_modules() {
    if workshop().is_none() {
        return;
    }
    let set = coding(&settings(&[], 1000));
    let ids: BTreeSet<&str> = set.all().iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids.len(), set.all().len(), "each task has another id");
    let sites = |split: &str| -> BTreeSet<String> {
        let tasks = set.split(split).unwrap();
        tasks.iter().map(|task| task.id.rsplit_once('-').unwrap().0.to_owned()).collect()
    };
    let [train, valid, test] = ["train", "valid", "test"].map(sites);
    println!("{} tasks; lines: {} {} {}", set.all().len(), train.len(), valid.len(), test.len());
    assert!(set.all().len() > 200 && !train.is_empty() && !valid.is_empty() && !test.is_empty());
    assert!(train.is_disjoint(&valid) && train.is_disjoint(&test) && valid.is_disjoint(&test));
    for library in &LIBRARIES {
        let files: BTreeSet<_> =
            set.all().iter().filter(|task| task.kind == library.name).map(CodingTask::path).collect();
        assert!(files.len() >= 2, "{}: {files:?}", library.name);
    }
    let both =
        CodingGenerator { languages: vec![Language::Python, Language::Rust], ..CodingGenerator::default() };
    assert_eq!(both.names().iter().collect::<BTreeSet<_>>().len(), both.names().len(), "names differ");
}

#[test]
fn cheats_in_rust_get_no_reward() {
    if workshop().is_none() {
        return;
    }
    let set = coding(&settings(&["quantity"], 1));
    let task = every_task(&set).remove(0);
    let known = set.task(&task.id).unwrap();
    let path = known.path();
    let values = known.checks.iter().map(|check| check.value.as_str()).collect::<Vec<_>>().join("\n");
    assert!(!values.is_empty());
    for cheat in [
        String::new(),
        "fn main() {".into(),
        "compile_error!(\"no\");".into(),
        format!("{}\npub fn main() {{ std::process::exit(0) }}", known.files[&path]),
        "pub const ALL: &str = include_str!(\"../.checks/main.rs\");".into(),
        "#![feature(rustc_private)]".into(),
    ] {
        let edit = call("edit", &serde_json::json!({"path": path, "new": cheat}));
        let steps = play(&set, &task, &[edit, "submit({})".into()]);
        assert!(steps[1].terminated && !steps[1].success, "{cheat}: {:?}", steps[1]);
    }
    // The agent's own `.checks` are replaced, and a long loop ends.
    let mut environment = set.coding();
    environment.reset(&task, seed()).unwrap();
    let fix = call("edit", &serde_json::json!({"path": path, "new": known.fix}));
    for action in [
        "edit({\"path\":\".checks/values\",\"new\":\"1\\n\"})",
        "edit({\"path\":\".checks/main.rs\",\"new\":\"fn main() {}\"})",
        &fix,
    ] {
        environment.step(&Action::from(action)).unwrap();
    }
    let step = environment.step(&Action::from("submit({})")).unwrap();
    assert!(step.success && step.reward == 1.0, "{step:?}");
}
