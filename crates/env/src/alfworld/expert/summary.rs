//! Summaries of expert episodes, the SFT targets for compaction (`prompt.compact_after`).
//!
//! ```text
//! seen cabinet 1, drawer 2. found mug 2 in drawer 2. mug 1 is clean. carrying mug 1.
//! ```
//!
//! A summary lists the receptacles searched so far and the wanted objects with their receptacles.
//! The summary also names the objects cleaned, heated or cooled for the task, and the object in
//! hand.

use super::{Expert, TaskType, kind_of};
use crate::demonstration::Demonstration;

pub(in crate::alfworld) fn summary(episode: &Demonstration, turn: usize) -> String {
    let prior = super::Prior::default();
    let mut expert = Expert::new(&prior);
    let Some(first) = episode.turns.first() else { return String::new() };
    expert.reset(&first.observation, &episode.task.goal);
    for seen in episode.turns.iter().take(turn + 1) {
        expert.observe(&seen.observation);
    }
    expert.summary()
}

impl Expert<'_> {
    /// Summarizes the expert's knowledge in one line.
    pub fn summary(&self) -> String {
        let looked_into = || self.spots.iter().filter_map(|spot| Some((spot, spot.contents.as_ref()?)));
        let seen: Vec<&str> = looked_into().map(|(spot, _)| spot.name.as_str()).collect();
        let wanted = |object: &&String| {
            self.wish.as_ref().is_some_and(|wish| {
                let kind = kind_of(object);
                kind == wish.object || (wish.task_type == TaskType::LookInLight && kind == wish.target)
            })
        };
        let found: Vec<String> = looked_into()
            .flat_map(|(spot, contents)| {
                contents.iter().filter(wanted).map(move |object| format!("{object} in {}", spot.name))
            })
            .collect();
        let mut facts =
            vec![format!("seen {}.", if seen.is_empty() { "nothing".into() } else { seen.join(", ") })];
        if !found.is_empty() {
            facts.push(format!("found {}.", found.join(", ")));
        }
        if let Some((verb, _)) = self.wish.as_ref().and_then(super::Wish::treatment) {
            let state = if verb == "heat" { "hot" } else { verb };
            facts.extend(self.treated.iter().map(|object| format!("{object} is {state}.")));
        }
        facts.extend(self.holding.iter().map(|object| format!("carrying {object}.")));
        facts.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::Task;

    use super::*;
    use crate::demonstration::DemonstrationTurn;

    #[test]
    fn a_summary_has_the_facts_that_the_expert_acts_on() {
        let introduction = "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you \
                            see a cabinet 1, a drawer 1, a drawer 2, and a sinkbasin 1.\n\nYour task is to: put a clean mug in cabinet.";
        let seen = [
            (introduction, "go to drawer 1"),
            ("You arrive at drawer 1. The drawer 1 is closed.", "go to drawer 2"),
            ("You arrive at drawer 2. The drawer 2 is closed.", "open drawer 2"),
            (
                "You open the drawer 2. The drawer 2 is open. In it, you see a mug 1, a mug 2, and a pen 3.",
                "take mug 1 from drawer 2",
            ),
            ("You pick up the mug 1 from the drawer 2.", "go to sinkbasin 1"),
            (
                "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.",
                "clean mug 1 with sinkbasin 1",
            ),
            ("You clean the mug 1 using the sinkbasin 1.", "go to cabinet 1"),
        ];
        let turns = seen
            .map(|(observation, action)| DemonstrationTurn {
                observation: observation.into(),
                action: action.into(),
                ..DemonstrationTurn::default()
            })
            .to_vec();
        let task = Task::new("t", "k", "put a clean mug in cabinet.");
        let episode = Demonstration { task, tools: Vec::new(), turns, final_observation: String::new() };
        assert_eq!(summary(&episode, 1), "seen nothing.");
        assert_eq!(summary(&episode, 3), "seen drawer 2. found mug 1 in drawer 2, mug 2 in drawer 2.");
        let last = "seen drawer 2, sinkbasin 1. found mug 2 in drawer 2. mug 1 is clean. carrying mug 1.";
        assert_eq!(summary(&episode, 6), last);
    }
}
