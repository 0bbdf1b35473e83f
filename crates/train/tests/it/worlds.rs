//! A world from outside of the project, and panels that pin what tasks are made of.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use turnwise_train::config::ConfigSource;
use turnwise_train::config::load;
use turnwise_train::record::panels;
use turnwise_train::setup::World;
use turnwise_train::{NoopObserver, RunDirectory};

use crate::custom_environment;

#[test]
fn a_world_of_another_crate_trains() {
    let folder = tempfile::tempdir().unwrap();
    let lines = custom_environment::train(&folder.path().join("run")).unwrap();
    let rates: Vec<f64> = lines.iter().filter_map(|line| line.metrics.get("train/success_rate")).collect();
    assert_eq!(rates.len(), 3, "three steps of reinforcement learning");
    // The warm start has taught it something: letters at random open nothing.
    assert!(rates.iter().any(|rate| *rate > 0.0), "{rates:?}");
    // Without the registry the run's config names a world that is not there.
    let error = turnwise_train::Run::resume(&folder.path().join("run"), &mut NoopObserver).err().unwrap();
    let error = error.to_string();
    assert!(error.contains("env.kind = \"lock\"") && error.contains("`alfworld`"), "{error}");
}

/// The words of the fact that a text begins with, `(name argument argument`.
fn fact(text: &str) -> Option<&str> {
    text.find(')').map(|end| &text[..end])
}

#[test]
fn a_game_that_changed_under_its_name_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let games = folder.path().join("games");
    let generator = turnwise_env::alfworld::generator::GeneratorConfig {
        train: 6,
        valid_seen: 0,
        valid_unseen: 2,
        ..Default::default()
    };
    turnwise_env::alfworld::generator::write_games(&generator, &games).unwrap();
    let overrides = [format!("env.data={}", games.display()), "eval.splits=[\"valid_unseen\"]".into()];
    let config = load(&ConfigSource { overrides: overrides.to_vec(), ..ConfigSource::default() }).unwrap();
    let open = || World::new(&config.env, &config.splits(), &mut |_| ()).unwrap();
    let world = open();
    let run = RunDirectory::create(&folder.path().join("run")).unwrap();
    let panels = panels::pin(&config, world.task_set()).unwrap();
    run.write_json("panel.json", &panels).unwrap();
    panels::verify(&run, &config, world.task_set()).unwrap();
    let own = panels::pinned(&run, "valid_unseen", world.task_set()).unwrap().unwrap();
    assert_eq!(own, panels.evaluation["valid_unseen"]);
    assert!(panels::pinned(&run, "train", world.task_set()).unwrap().is_none());

    // One fact of a game is another under the same name: the agent starts somewhere else.
    let task = &own.tasks[0];
    let file = games.join(&task.id).join("game.tw-pddl");
    let text = std::fs::read_to_string(&file).unwrap();
    let locations: Vec<&str> = text
        .match_indices("(receptacleAtLocation ")
        .filter_map(|(at, _)| fact(&text[at..])?.split(' ').nth(2))
        .collect();
    let at = text.find("(atLocation agent").unwrap();
    let fact = fact(&text[at..]).unwrap();
    let place = fact.split(' ').nth(2).unwrap();
    let other = locations.iter().find(|location| **location != place).unwrap();
    let changed = text.replacen(fact, &fact.replace(place, other), 1);
    assert_ne!(changed, text);
    std::fs::write(&file, changed).unwrap();
    let world = open();
    let found = world.task_set().tasks("valid_unseen").unwrap();
    let found = found.iter().find(|found| found.id == task.id).unwrap();
    assert_eq!((&found.goal, &found.kind), (&task.goal, &task.kind), "one fact and nothing else");
    let expected = format!(
        "the content of task `{}` has changed since the panel was pinned, under the same name (its digest was {}, it is {}); \
         the data are not the same",
        task.id,
        task.content_digest(),
        found.content_digest()
    );
    for error in [
        panels::verify(&run, &config, world.task_set()).unwrap_err().to_string(),
        panels::pinned(&run, "valid_unseen", world.task_set()).unwrap_err().to_string(),
    ] {
        assert!(error.ends_with(&expected), "{error}");
    }
}
