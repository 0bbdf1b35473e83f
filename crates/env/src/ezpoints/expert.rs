//! Expert that plays a winning formula.

use turnwise_core::{EnvError, Observation, Purpose, Rng, Seed, Task};

use super::cards::Deal;
use super::environment::EzPointsEnv;
use super::formula::Symbol;
use super::game::{Action as Move, Game, MOST_SYMBOLS, REWARD};
use super::set::EzPointsSet;
use crate::demonstration::{Demonstration, DemonstrationRequest, Demonstrations, play_all, play_episode};
use crate::world::Advisor;

fn formula(deal: Deal) -> [Symbol; 3] {
    let [left, right] = deal.numbers().map(Symbol::Number);
    [left, deal.operator().unwrap_or(Symbol::Times), right]
}

/// Returns the next action towards the shortest formula that equals 12, or `=` if the current
/// formula cannot be completed.
fn next(game: &Game) -> &'static str {
    (0..=MOST_SYMBOLS).find_map(|symbols| leading(game, symbols)).unwrap_or("=")
}

/// Returns the first action of a winning sequence that adds exactly `symbols` symbols before `=`.
fn leading(game: &Game, symbols: usize) -> Option<&'static str> {
    let Some(fewer) = symbols.checked_sub(1) else {
        return (game.clone().act(Move::Evaluate).reward == REWARD).then_some("=");
    };
    let [left, right] = game.deal().numbers().map(Symbol::Number);
    [left, right, Symbol::Plus, Symbol::Times].into_iter().find_map(|symbol| {
        let mut after = game.clone();
        let leads = after.act(Move::Add(symbol)).effective && leading(&after, fewer).is_some();
        leads.then_some(symbol.text())
    })
}

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
            game.act(Move::parse(symbol));
        }
        next(&game).to_owned()
    }
}

/// Plays demonstrations. With probability `early_evaluation_prob`, the expert evaluates the formula
/// before it adds the second number, and SFT imitates this failure.
pub(super) fn demonstrate(
    set: &EzPointsSet,
    request: &DemonstrationRequest<'_>,
    early_evaluation_prob: f64,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        play(set, task, request, early_evaluation_prob, &mut seed.rng())
    })
}

fn play(
    set: &EzPointsSet,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    early_evaluation_prob: f64,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let deal = set.deal(&task.id)?;
    let mut plan: Vec<&str> = formula(deal).into_iter().map(Symbol::text).chain(["="]).collect();
    if rng.chance(early_evaluation_prob) {
        plan.remove(2);
    }
    let unusable: Vec<u8> = (1..=10).filter(|number| !deal.numbers().contains(number)).collect();
    let mut plan = plan.into_iter();
    let act = |_: &EzPointsEnv, _: &Observation| {
        let imitate = !rng.chance(request.invalid_action_prob);
        let action = if imitate {
            plan.next()?.to_owned()
        } else {
            rng.choose(&unusable).map_or_else(String::new, u8::to_string)
        };
        Some((action, imitate))
    };
    let seed = Seed::derive(0, Purpose::Environment, &[]);
    play_episode(&mut set.ezpoints(), task, seed, request, act, |step| step.terminated)
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Action, Environment as _};

    use super::super::environment::describe;
    use super::super::formula::{eval, text};
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

    fn is_winnable(numbers: [Symbol; 2], written: &[Symbol]) -> bool {
        if written.len() > MOST_SYMBOLS {
            return false;
        }
        let mut left = numbers.to_vec();
        for symbol in written {
            if let Some(at) = left.iter().position(|number| number == symbol) {
                left.remove(at);
            }
        }
        if left.is_empty() && eval(&text(written)) == Some(12) {
            return true;
        }
        left.into_iter()
            .chain([Symbol::Plus, Symbol::Times])
            .any(|symbol| is_winnable(numbers, &[written, &[symbol]].concat()))
    }

    fn follow(mut game: Game) -> bool {
        let mut adviser = Adviser::new(game.deal());
        loop {
            let advice = adviser.advise(&Observation::new(describe(&game)));
            let outcome = game.act(Move::parse(&advice));
            if outcome.terminated || outcome.truncated {
                return outcome.reward == REWARD;
            }
            assert!(outcome.effective, "advice that does nothing: {:?}", game.formula());
        }
    }

    #[test]
    fn advice_wins_from_wherever_an_episode_can_be_won() {
        let mut numbers_seen = std::collections::HashSet::new();
        let (mut won, mut lost, mut other_order) = (0, 0, false);
        for deal in Deal::all() {
            if !numbers_seen.insert(deal.numbers()) {
                continue;
            }
            let mut todo = vec![Game::new(deal)];
            while let Some(game) = todo.pop() {
                let numbers = deal.numbers().map(Symbol::Number);
                let winnable = is_winnable(numbers, game.formula());
                assert_eq!(follow(game.clone()), winnable, "{deal}: {:?}", game.formula());
                won += usize::from(winnable);
                lost += usize::from(!winnable);
                other_order |= winnable && game.formula().first() == Some(&numbers[1]);
                for symbol in numbers.into_iter().chain([Symbol::Plus, Symbol::Times]) {
                    let mut after = game.clone();
                    if after.act(Move::Add(symbol)).effective && !todo.contains(&after) {
                        todo.push(after);
                    }
                }
            }
        }
        assert!(won > 100 && lost > 1000 && other_order, "{won} {lost}");
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
