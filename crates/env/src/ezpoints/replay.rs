//! Compares this crate's EZPoints with recorded episodes of gym-cards.
//!
//! Recordings are JSON Lines with one object per episode:
//!
//! ```text
//! {"seed", "cards": ["H4", "C8"], "numbers": [4, 8],
//!  "steps": [{"action": -1..12, "reward", "terminated", "truncated", "formula", "won"}, ..]}
//! ```
//!
//! If a folder is given, it must contain gym-cards' card images in `cards_135x189`, and may contain
//! each episode's last image as `final_obs_seedN.png`. Recorded and replayed pixels must be equal,
//! except in the rows of the formula, because the fonts differ (`TEXT_TOLERANCE`).

use std::io::BufRead;
use std::path::Path;

use serde::Deserialize;
use turnwise_core::EnvError;

use super::cards::{Card, Deal};
use super::formula::text;
use super::game::{ACTIONS, Action, Game, REWARD};
use super::picture::{Cards, TEXT_ROWS};
use crate::pictures::{Picture, png};
use crate::replay::{Checker, ReplayReport, numbered_lines};

/// Maximum mean absolute difference between recorded and replayed colour values (0 to 255) in the
/// formula's rows.
pub(crate) const TEXT_TOLERANCE: f64 = 4.0;

#[derive(Deserialize)]
pub(super) struct Recording {
    seed: u64,
    cards: [String; 2],
    numbers: [u8; 2],
    steps: Vec<RecordedStep>,
}

#[derive(Deserialize)]
struct RecordedStep {
    action: i64,
    reward: f64,
    terminated: bool,
    truncated: bool,
    formula: String,
    won: bool,
}

impl Recording {
    pub(super) fn parse(line: &str) -> Result<(Self, Deal), String> {
        let recording: Self =
            serde_json::from_str(line).map_err(|error| format!("this is no recorded episode: {error}"))?;
        let deal = deal_of(&recording.cards)?;
        Ok((recording, deal))
    }
}

fn deal_of(cards: &[String; 2]) -> Result<Deal, String> {
    let card = |name: &String| {
        Card::parse(name).ok_or_else(|| {
            format!("{name:?} is no card; a card is a suit of H, S, D, C and a rank of A, 2 to 9, T, J, Q, K")
        })
    };
    Ok(Deal([card(&cards[0])?, card(&cards[1])?]))
}

pub(super) fn parse_deal(line: &str) -> Result<Deal, String> {
    #[derive(Deserialize)]
    struct Dealt {
        cards: [String; 2],
    }
    let dealt: Dealt = serde_json::from_str(line)
        .map_err(|error| format!("this is no JSON object with two `cards`: {error}"))?;
    deal_of(&dealt.cards)
}

/// Replays a recording.
///
/// # Errors
/// Fails if a line is not an episode or a file cannot be read. Differences from the recording are
/// not errors.
pub fn replay(name: &str, reader: impl BufRead, data: Option<&Path>) -> Result<ReplayReport, EnvError> {
    let cards = data.map(|folder| Cards::read(&folder.join("cards_135x189"))).transpose()?;
    let mut differences = Vec::new();
    let (mut episodes, mut steps, mut pictures) = (0, 0, 0);
    for line in numbered_lines(name, reader) {
        let line = line?;
        let (recording, deal) = Recording::parse(&line.text).map_err(|reason| line.error(reason))?;
        let task = format!("seed {}, {deal}", recording.seed);
        let mut checker = Checker::new(&mut differences, line.number, task);
        checker.add("numbers", &format!("{:?}", recording.numbers), &format!("{:?}", deal.numbers()));
        let mut game = Game::new(deal);
        for (taken, step) in (1..).zip(&recording.steps) {
            checker.at(taken);
            let action = match step.action {
                -1 => Action::Nothing,
                action => usize::try_from(action).ok().filter(|index| *index < ACTIONS.len()).map_or_else(
                    || Err(line.error(format!("{action} is no action; there are -1 to 12"))),
                    |index| Ok(Action::of(index)),
                )?,
            };
            let outcome = game.act(action);
            checker.add("reward", &step.reward, &outcome.reward);
            checker.add("terminated", &step.terminated, &outcome.terminated);
            checker.add("truncated", &step.truncated, &outcome.truncated);
            checker.add("won", &step.won, &(outcome.reward == REWARD));
            checker.add("formula", &step.formula, &text(game.formula()));
        }
        if let (Some(folder), Some(cards)) = (data, &cards) {
            let path = folder.join(format!("final_obs_seed{}.png", recording.seed));
            if path.exists() {
                pictures += 1;
                let difference = compare(&png::read(&path)?, &cards.render(&game));
                checker.add("picture", &String::new(), &difference.unwrap_or_default());
            }
        }
        episodes += 1;
        steps += recording.steps.len();
    }
    let mut counts = format!("{episodes} episodes, {steps} steps, {} differences", differences.len());
    if data.is_some() {
        counts.push_str(&format!(" ({pictures} pictures compared)"));
    }
    Ok(ReplayReport { counts, unit: "episode", differences })
}

pub(super) fn compare(expected: &Picture, found: &Picture) -> Option<String> {
    let size = |picture: &Picture| (picture.width(), picture.height());
    if size(expected) != size(found) {
        return Some(format!("{:?} pixels, not {:?}", size(found), size(expected)));
    }
    let mut sum = 0u64;
    let mut bytes = 0u64;
    for y in 0..expected.height() {
        for x in 0..expected.width() {
            let (left, right) = (expected.pixel(x, y), found.pixel(x, y));
            if TEXT_ROWS.contains(&y) {
                sum +=
                    left.iter().zip(right).map(|(left, right)| u64::from(left.abs_diff(right))).sum::<u64>();
                bytes += 3;
            } else if left != right {
                return Some(format!("row {y}, column {x}: {right:?}, not {left:?}"));
            }
        }
    }
    let mean = sum as f64 / bytes.max(1) as f64;
    (mean > TEXT_TOLERANCE).then(|| format!("mean difference of {mean:.2} in the formula's rows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPISODE: &str = r#"{"seed": 1, "cards": ["H4", "C8"], "numbers": [4, 8], "steps": [
        {"action": 3, "reward": 0, "terminated": false, "truncated": false, "formula": "4", "won": false},
        {"action": -1, "reward": 0, "terminated": false, "truncated": false, "formula": "4", "won": false},
        {"action": 10, "reward": 0, "terminated": false, "truncated": false, "formula": "4+", "won": false},
        {"action": 7, "reward": 0, "terminated": false, "truncated": false, "formula": "4+8", "won": false},
        {"action": 12, "reward": 10, "terminated": true, "truncated": false, "formula": "4+8", "won": true}]}"#;

    fn report(text: &str) -> ReplayReport {
        replay("episodes.jsonl", text.replace('\n', " ").as_bytes(), None).unwrap()
    }

    #[test]
    fn every_change_of_a_recording_is_found() {
        assert_eq!(report(EPISODE).counts, "1 episodes, 5 steps, 0 differences");
        for (from, to, fields) in [
            ("\"reward\": 10", "\"reward\": 9", &["reward"][..]),
            ("\"terminated\": true", "\"terminated\": false", &["terminated"]),
            ("\"formula\": \"4+\"", "\"formula\": \"4\"", &["formula"]),
            ("\"won\": true", "\"won\": false", &["won"]),
            ("[4, 8]", "[4, 9]", &["numbers"]),
            ("\"action\": -1", "\"action\": 3", &[]),
        ] {
            assert!(EPISODE.contains(from), "{from}");
            let report = report(&EPISODE.replacen(from, to, 1));
            let found: Vec<&str> = report.differences.iter().map(|difference| difference.field).collect();
            assert_eq!(found, fields, "{from}");
        }
    }

    #[test]
    fn what_is_no_recording_is_named() {
        for (from, to, expected) in [
            ("\"H4\"", "\"H1\"", "ep.jsonl, line 1: \"H1\" is no card"),
            ("\"action\": 12", "\"action\": 13", "line 1: 13 is no action"),
            ("\"cards\"", "\"card\"", "no recorded episode"),
        ] {
            let text = EPISODE.replace(from, to).replace('\n', " ");
            let error = replay("ep.jsonl", text.as_bytes(), None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
