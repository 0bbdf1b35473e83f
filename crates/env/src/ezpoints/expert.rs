//! An expert that knows the formula, and its episodes to imitate.

use turnwise_core::{Action, EnvError, Environment as _, Observation, Purpose, Rng, Seed, Task};

use super::cards::Deal;
use super::formula::Symbol;
use super::game::Game;
use super::set::EzPointsSet;
use crate::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, play_all,
};
use crate::world::Advisor;

/// The formula of a deal that comes to 12: the numbers in the order of the cards.
fn formula(deal: Deal) -> [String; 4] {
    let [left, right] = deal.numbers();
    let operator = if left + right == 12 { "+" } else { "*" };
    [left.to_string(), operator.to_owned(), right.to_string(), "=".to_owned()]
}

/// The action that leads on to a formula of 12: the next symbol of the expert's formula while this one is the start
/// of it, `=` otherwise.
fn next(game: &Game) -> String {
    let symbol = |text: &String| match text.as_str() {
        "+" => Some(Symbol::Plus),
        "*" => Some(Symbol::Times),
        number => number.parse().ok().map(Symbol::Number),
    };
    let plan = formula(game.deal());
    let so_far = game.formula();
    let fits = plan.iter().zip(so_far).all(|(text, found)| symbol(text) == Some(*found));
    match plan.get(so_far.len()) {
        Some(text) if fits => text.clone(),
        _ => "=".to_owned(),
    }
}

/// Gives advice to a person who plays a deal.
pub(super) struct Adviser {
    deal: Deal,
}

impl Adviser {
    pub(super) fn new(deal: Deal) -> Self {
        Self { deal }
    }
}

impl Advisor for Adviser {
    fn advise(&mut self, observation: &Observation) -> String {
        let text = observation.text();
        let written = text.rsplit_once("Formula:").map_or("", |(_, formula)| formula);
        let mut game = Game::new(self.deal);
        for symbol in written.split_whitespace() {
            game.act(super::game::Action::parse(symbol));
        }
        next(&game)
    }
}

/// Lets the expert play `count` deals of a split, taken in turn from the first. With probability `early_evaluation_prob` it
/// evaluates the formula without its second number, and the episode misses its goal; it is imitated nevertheless.
pub(super) fn demonstrate(
    set: &EzPointsSet,
    request: &DemonstrationRequest<'_>,
    early_evaluation_prob: f64,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        play(set, task, request, early_evaluation_prob, &mut seed.rng())
    })
}

/// One episode; `None` if it does not come to its `=`.
fn play(
    set: &EzPointsSet,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    early_evaluation_prob: f64,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let deal = set.deal(&task.id)?;
    let mut plan = formula(deal).to_vec();
    if rng.chance(early_evaluation_prob) {
        plan.remove(2);
    }
    // A number that neither card has.
    let unusable: Vec<u8> = (1..=10).filter(|number| !deal.numbers().contains(number)).collect();
    let mut plan = plan.into_iter().peekable();
    let mut environment = set.ezpoints();
    let mut observation = environment.reset(task, Seed::derive(0, Purpose::Environment, &[]))?;
    let mut turns = Vec::new();
    while turns.len() < request.max_turns {
        let imitate = !rng.chance(request.invalid_action_prob);
        let action = if imitate {
            let Some(action) = plan.next() else { return Ok(None) };
            action
        } else {
            rng.choose(&unusable).map_or_else(String::new, u8::to_string)
        };
        let step = environment.step(&Action::from(&action))?;
        let before = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn::new(before, request.keep_admissible, action, imitate, step.reward));
        if step.terminated {
            let final_observation = observation.into_text();
            return Ok(Some(Demonstration { task: task.clone(), turns, final_observation }));
        }
        if step.truncated {
            break;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::set::{EzPointsGenerator, EzPointsReward};
    use super::*;

    fn request(invalid_action_prob: f64) -> DemonstrationRequest<'static> {
        DemonstrationRequest {
            count: 200,
            invalid_action_prob,
            max_turns: 8,
            seed: 3,
            ..DemonstrationRequest::default()
        }
    }

    #[test]
    fn the_expert_wins_and_the_noisy_one_errs_as_often_as_asked() {
        let set =
            EzPointsSet::new(&EzPointsGenerator::default(), None, EzPointsReward::Success, None).unwrap();
        let won = |wrong: f64, invalid: f64| {
            let made = demonstrate(&set, &request(invalid), wrong).unwrap();
            assert_eq!(made.episodes.len() + made.dropped, 200);
            let reward = |episode: &Demonstration| episode.turns.last().unwrap().reward;
            (made.episodes.iter().map(reward).sum::<f64>(), made.episodes.len() as f64)
        };
        assert_eq!(won(0.0, 0.0), (200.0, 200.0));
        let (noisy, _) = won(0.4, 0.0);
        assert!((95.0..145.0).contains(&noisy), "{noisy}");
        let (won, played) = won(0.0, 0.2);
        assert!(won == played && played > 190.0, "{won} of {played}");
    }

    #[test]
    fn advice_leads_to_twelve_from_the_start() {
        let set =
            EzPointsSet::new(&EzPointsGenerator::default(), None, EzPointsReward::Original, None).unwrap();
        for task in set.split("test").unwrap() {
            let mut environment = set.ezpoints();
            let mut adviser = Adviser::new(set.deal(&task.id).unwrap());
            let mut observation =
                environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
            loop {
                let step = environment.step(&Action::from(adviser.advise(&observation))).unwrap();
                observation = step.observation;
                if step.terminated {
                    assert!(step.success, "{}: {}", task.id, observation.text());
                    break;
                }
            }
        }
    }
}
