use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::*;
use crate::alfworld::generator::{GeneratorConfig, Size, generate};
use crate::alfworld::{AlfworldSet, Episode, Game};

fn play(game: &Arc<Game>, prior: &Prior, order: SearchOrder, limit: usize) -> Option<usize> {
    let mut episode = Episode::new(Arc::clone(game));
    let mut expert = Expert::new(prior).with_order(order);
    assert!(expert.reset(episode.observation(), game.sentence()), "{}: {}", game.id(), game.sentence());
    for step in 1..=limit {
        let observation = Observation::new(episode.observation()).with_admissible(episode.admissible());
        let action = expert.act(&observation);
        assert!(observation.admissible.contains(&action), "{}: `{action}`", game.id());
        if episode.step(&action).won {
            return Some(step);
        }
    }
    None
}

type Score = BTreeMap<TaskType, (usize, usize, usize)>;

fn score(games: &[Arc<Game>], prior: &Prior, order: SearchOrder, limit: usize) -> Score {
    let played: Vec<_> =
        games.par_iter().map(|game| (game.task_type(), play(game, prior, order, limit))).collect();
    let mut score = Score::new();
    for (kind, steps) in played {
        let entry = score.entry(kind).or_default();
        entry.0 += usize::from(steps.is_some());
        entry.1 += 1;
        entry.2 += steps.unwrap_or(0);
    }
    score
}

fn lowest(score: &Score) -> f64 {
    score.values().map(|&(won, all, _)| won as f64 / all as f64).fold(1.0, f64::min)
}

#[test]
fn generated_games_of_every_size_and_type_are_solved() {
    let prior = Prior::embedded().unwrap();
    for size in [Size::Tiny, Size::Small, Size::Medium, Size::Full] {
        let config = GeneratorConfig {
            seed: 5,
            size,
            train: 0,
            valid_seen: 0,
            valid_unseen: 600,
            ..Default::default()
        };
        let set = generate(&config).unwrap();
        let games = set.split("valid_unseen").unwrap();
        for order in [SearchOrder::Likely, SearchOrder::Listed] {
            let score = score(games, prior, order, 50);
            report(&format!("{size:?} {order:?}"), &score);
            assert!(lowest(&score) >= 0.95, "{size:?} {order:?}: {score:?}");
        }
        if size == Size::Full {
            let steps = |prior: &Prior| -> usize {
                score(games, prior, SearchOrder::Likely, 200).values().map(|score| score.2).sum()
            };
            let (with, without) = (steps(prior), steps(&Prior::default()));
            assert!(with * 10 < without * 9, "{with} {without}");
        }
    }
}

fn report(what: &str, score: &Score) {
    let (mut won, mut all) = (0, 0);
    let mut line = String::new();
    for (kind, &(wins, games, steps)) in score {
        line += &format!("  {kind} {wins}/{games} ({:.1} steps)", steps as f64 / wins.max(1) as f64);
        won += wins;
        all += games;
    }
    eprintln!("{what}: {won}/{all}{line}");
}

#[test]
fn official_validation_games_are_solved() {
    let Some(data) = std::env::var_os("TURNWISE_DATA") else {
        eprintln!("skipped: TURNWISE_DATA not set");
        return;
    };
    let (set, _) = AlfworldSet::load_splits(
        &Path::new(&data).join("alfworld/json_2.1.1_game.tw-pddl.tar.zst"),
        &["train", "valid_seen", "valid_unseen"],
    )
    .unwrap();
    let prior = Prior::from_games(set.split("train").unwrap());
    for split in ["valid_seen", "valid_unseen"] {
        let games = set.split(split).unwrap();
        let score = score(games, &prior, SearchOrder::Likely, 50);
        report(split, &score);
        let won: usize = score.values().map(|&(won, _, _)| won).sum();
        assert!(won as f64 >= 0.95 * games.len() as f64, "{split}: {score:?}");
    }
}

#[test]
fn sentences_of_other_kinds_are_refused() {
    let wish = |sentence: &str| Wish::parse(sentence).map(|wish| (wish.task_type, wish.object, wish.target));
    let expected = |kind, object: &str, target: &str| Some((kind, object.to_owned(), target.to_owned()));
    assert_eq!(wish("put some cd on safe."), expected(TaskType::PickAndPlace, "cd", "safe"));
    assert_eq!(wish("put a hot mug in shelf."), expected(TaskType::PickHeatThenPlace, "mug", "shelf"));
    assert_eq!(wish("look at bowl under the desklamp."), expected(TaskType::LookInLight, "bowl", "desklamp"));
    assert_eq!(wish("find two pen and put them in drawer."), expected(TaskType::PickTwo, "pen", "drawer"));
    assert_eq!(wish("wash the dishes."), None);
    assert_eq!(wish(""), None);
    let prior = Prior::default();
    let mut expert = Expert::new(&prior);
    assert!(!expert.reset("no introduction", "wash the dishes."));
    let observation = Observation::new("hm").with_admissible(vec!["help".into(), "look".into()]);
    assert_eq!(expert.act(&observation), "look");
    assert_eq!(expert.act(&Observation::default()), "look");
}

#[test]
fn a_closed_door_a_wrong_object_and_a_failed_command_do_not_confuse_it() {
    let config = GeneratorConfig { seed: 2, train: 60, valid_seen: 0, valid_unseen: 0, ..Default::default() };
    let set = generate(&config).unwrap();
    let prior = Prior::embedded().unwrap();
    for game in set.iter() {
        let mut episode = Episode::new(Arc::clone(game));
        let mut expert = Expert::new(prior);
        expert.reset(episode.observation(), game.sentence());
        while !episode.won() && episode.steps() < 120 {
            let observation = Observation::new(episode.observation()).with_admissible(episode.admissible());
            let foreign = ["close ", "take ", "dance "][episode.steps() / 3 % 3];
            let other = observation.admissible.iter().find(|action| action.starts_with(foreign));
            let action = if episode.steps() % 3 == 2 && episode.steps() < 40 {
                expert.observe(&observation.text());
                other.cloned().unwrap_or_else(|| "dance".into())
            } else {
                expert.act(&observation)
            };
            episode.step(&action);
        }
        assert!(episode.won(), "{}", game.id());
    }
}
