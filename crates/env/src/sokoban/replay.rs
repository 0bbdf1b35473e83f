//! Compares this crate's Sokoban with recorded episodes of gym-sokoban.
//!
//! Recordings are JSON Lines with one object per episode:
//!
//! ```text
//! {"num_boxes", "max_steps", "seed", "room_fixed": [[..]], "room_state": [[..]], "text", "shortest_solution": [1..],
//!  "steps": [{"action": 1..4, "reward", "done", "moved", "won", "text"}, ..]}
//! ```
//!
//! Recorded and replayed flags, texts and rewards must be identical. A recorded
//! `shortest_solution`, unless empty, must solve the level in as many moves as the solver's
//! solution.

use std::io::BufRead;

use serde::Deserialize;
use turnwise_core::EnvError;

use super::level::RecordedRoom;
use super::room::{Direction, Room, RoomText};
use super::solver::Solver;
use crate::replay::{Checker, ReplayReport, numbered_lines};

#[derive(Deserialize)]
struct Recording {
    num_boxes: usize,
    max_steps: usize,
    seed: u64,
    #[serde(flatten)]
    level: RecordedRoom,
    text: String,
    shortest_solution: Vec<u64>,
    steps: Vec<RecordedStep>,
}

#[derive(Deserialize)]
struct RecordedStep {
    action: u64,
    reward: f64,
    done: bool,
    moved: bool,
    won: bool,
    text: String,
}

fn direction(action: u64) -> Result<Direction, String> {
    let index = action.checked_sub(1).and_then(|index| usize::try_from(index).ok());
    index
        .and_then(|index| Direction::ALL.get(index).copied())
        .ok_or_else(|| format!("{action} is no action; there are 1 (up), 2 (down), 3 (left) and 4 (right)"))
}

/// Replays a recording.
///
/// # Errors
/// Fails if a line is not an episode or the recording cannot be read. Differences from the
/// recording are not errors.
pub fn replay(name: &str, reader: impl BufRead) -> Result<ReplayReport, EnvError> {
    let mut solver = Solver::default();
    let mut differences = Vec::new();
    let (mut episodes, mut steps) = (0, 0);
    for line in numbered_lines(name, reader) {
        let line = line?;
        let recording: Recording = serde_json::from_str(&line.text)
            .map_err(|error| line.error(format!("this is no recorded episode: {error}")))?;
        let room = recording.level.room().map_err(|reason| line.error(reason))?;
        let checker = Checker::new(&mut differences, line.number, format!("seed {}", recording.seed));
        compare(checker, &recording, room, &mut solver).map_err(|reason| line.error(reason))?;
        episodes += 1;
        steps += recording.steps.len();
    }
    let counts = format!("{episodes} episodes, {steps} steps, {} differences", differences.len());
    Ok(ReplayReport { counts, unit: "episode", differences })
}

fn compare(
    mut checker: Checker<'_>,
    recording: &Recording,
    mut room: Room,
    solver: &mut Solver,
) -> Result<(), String> {
    checker.add("text", &recording.text, &room.render(RoomText::VerlAgent));
    checker.add("num_boxes", &recording.num_boxes, &room.boxes());
    if !recording.shortest_solution.is_empty() {
        let found =
            solver.solve(&room).moves().map_or_else(|| "none".to_owned(), |moves| moves.len().to_string());
        checker.add("shortest_solution", &recording.shortest_solution.len().to_string(), &found);
        let mut solved = room.clone();
        for &action in &recording.shortest_solution {
            solved.act(direction(action)?);
        }
        checker.add("shortest_solution", &true, &solved.is_solved());
    }
    for (taken, step) in (1..).zip(&recording.steps) {
        checker.at(taken);
        let moved = room.act(direction(step.action)?);
        checker.add("reward", &step.reward, &moved.reward);
        checker.add("moved", &step.moved, &moved.moved);
        checker.add("won", &step.won, &moved.solved);
        checker.add("done", &step.done, &(moved.solved || taken >= recording.max_steps));
        checker.add("text", &step.text, &room.render(RoomText::VerlAgent));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSH: &str = r#"{"num_boxes":1,"max_steps":15,"seed":3,"room_fixed":[[0,0,0,0,0],[0,1,1,2,0],[0,0,0,0,0]],"room_state":[[0,0,0,0,0],[0,5,4,2,0],[0,0,0,0,0]],"text":" # \t # \t # \t # \t # \t\n # \t P \t X \t O \t # \t\n # \t # \t # \t # \t # \t","shortest_solution":[4],"steps":[{"action":4,"reward":10.9,"done":true,"moved":true,"won":true,"text":" # \t # \t # \t # \t # \t\n # \t _ \t P \t √ \t # \t\n # \t # \t # \t # \t # \t"}]}"#;

    #[test]
    fn every_change_of_a_recording_is_found() {
        let report = |text: &str| replay("push.jsonl", text.as_bytes()).unwrap();
        assert_eq!(report(PUSH).counts, "1 episodes, 1 steps, 0 differences");
        for (from, to, field) in [
            ("10.9", "10.899999999999999", "reward"),
            (r#""done":true"#, r#""done":false"#, "done"),
            (r#""moved":true"#, r#""moved":false"#, "moved"),
            (r#""won":true"#, r#""won":false"#, "won"),
            ("√", "X", "text"),
            (r#"[4],"steps""#, r#"[3,4],"steps""#, "shortest_solution"),
            (r#""num_boxes":1"#, r#""num_boxes":2"#, "num_boxes"),
        ] {
            assert!(PUSH.contains(from), "{from}");
            let report = report(&PUSH.replace(from, to));
            let fields: Vec<&str> = report.differences.iter().map(|difference| difference.field).collect();
            assert_eq!(fields, [field], "{from}");
        }
    }

    #[test]
    fn what_is_no_recording_is_named() {
        for (text, expected) in [
            ("\n{}", "rec.jsonl, line 2: this is no recorded episode"),
            (&*PUSH.replace(r#""action":4"#, r#""action":5"#), "line 1: 5 is no action"),
            (&*PUSH.replace("[0,5,4,2,0]", "[0,1,4,2,0]"), "0 players"),
        ] {
            let error = replay("rec.jsonl", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
