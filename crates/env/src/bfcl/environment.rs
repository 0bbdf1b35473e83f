//! BFCL as a [`turnwise_core::Environment`]: the user's turns, calls and their results, saved states.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{Action, EnvError, Environment, Metric, Observation, Seed, Snapshot, Step, Task};

use super::document::lines;
use super::grade::Grader;
use super::reply::read_calls;
use super::session::Session;
use super::set::Shared;
use crate::saved::SavedEpisode;

/// Plays the tasks of a [`super::BfclTasks`], one episode at a time.
///
/// A reply that is a list of calls is executed, and the observation has a line for each result. Any other reply ends the turn
/// of the user, and the observation is the next one. The episode ends after the last turn (`terminated`), after too many
/// replies with calls at one turn (`terminated`), or at the limit of turns (`truncated`). The reward is 1 for the reply that
/// ends the last turn if all turns passed, and 0 for every other.
#[derive(Debug)]
pub struct BfclEnv {
    shared: Arc<Shared>,
    max_turns: usize,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    task: String,
    session: Session,
    grader: Grader,
    /// The user's turn that is under way.
    turn: usize,
    /// Replies with calls at this turn.
    steps: usize,
    /// The replies so far: what a saved state is made of.
    replies: Vec<String>,
    over: bool,
}

/// The saved form: JSON with these keys, in this order, after the format's.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    /// The task's id.
    task: String,
    /// The replies.
    replies: Vec<String>,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "BFCL";
    const FORMAT: &'static str = "turnwise.bfcl.episode";
    const VERSION: u32 = 1;
}

impl BfclEnv {
    pub(super) fn new(shared: Arc<Shared>, max_turns: usize) -> Self {
        Self { shared, max_turns, episode: None }
    }

    /// What the model is shown when a turn of the user begins.
    fn says(&self, id: &str, turn: usize) -> Result<String, EnvError> {
        let task = self.shared.task(id)?;
        let documents = lines(&self.shared.package, task, turn, self.shared.options.documents);
        let mut text = String::new();
        if !documents.is_empty() {
            text.push_str(if turn == 0 { "Functions:\n" } else { "More functions:\n" });
            text.push_str(&documents.join("\n"));
            text.push('\n');
        }
        let said = task.turns.get(turn).map(String::as_str).unwrap_or_default();
        // A turn that only adds functions has no words of its own.
        let said = if said.is_empty() {
            "There are more functions now. Please go on with what was missing."
        } else {
            said
        };
        text.push_str("User: ");
        text.push_str(said);
        Ok(text)
    }

    fn begin(&self, id: &str) -> Result<Episode, EnvError> {
        let task = self.shared.task(id)?;
        let scenario = self.shared.package.scenario(task);
        Ok(Episode {
            task: id.to_owned(),
            session: Session::new(scenario, "turnwise"),
            grader: Grader::new(scenario),
            turn: 0,
            steps: 0,
            replies: Vec::new(),
            over: false,
        })
    }

    fn reply(&self, episode: &mut Episode, reply: &str) -> Result<Step, EnvError> {
        let task = self.shared.task(&episode.task)?;
        let options = &self.shared.options;
        episode.replies.push(reply.to_owned());
        let mut step = Step { understood: true, ..Step::default() };
        let calls = read_calls(reply);
        if calls.is_empty() {
            episode.grader.end_turn(task, episode.turn, &episode.session);
            episode.turn += 1;
            episode.steps = 0;
            let failed = episode.grader.failure().is_some();
            step.terminated = episode.turn >= task.turns.len() || (failed && options.stop_at_failed_turn);
            step.success = step.terminated && !failed;
            step.reward = f64::from(u8::from(step.success));
            let text = if step.terminated { String::new() } else { self.says(&episode.task, episode.turn)? };
            step.observation = Observation::new(text);
        } else {
            let mut shown = Vec::with_capacity(calls.len());
            for call in calls {
                let result = episode.session.execute(&call);
                episode.grader.see(&result);
                shown.push(format!("{call} -> {result}"));
            }
            episode.steps += 1;
            step.terminated = episode.steps > options.max_steps;
            step.observation = Observation::new(shown.join("\n"));
        }
        let passed = episode.grader.passed();
        step.progress = Some(passed as f64 / task.turns.len().max(1) as f64);
        step.metrics = vec![Metric::last("turns_passed", passed as f64)];
        step.truncated = !step.terminated && episode.replies.len() >= self.max_turns;
        episode.over = step.terminated || step.truncated;
        Ok(step)
    }
}

impl Environment for BfclEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        // What fails here leaves no episode, not the one before.
        self.episode = None;
        let text = self.says(&task.id, 0)?;
        self.episode = Some(self.begin(&task.id)?);
        Ok(Observation::new(text))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let mut episode = self.episode.take().ok_or(EnvError::NotReset)?;
        let step = if episode.over {
            Err(EnvError::Other(format!(
                "{}: the episode is over after {} replies; call `reset` before the next `step`",
                episode.task,
                episode.replies.len()
            )))
        } else {
            self.reply(&mut episode, &action.text())
        };
        self.episode = Some(episode);
        step
    }

    /// Versioned JSON: format, version, task and the replies. An episode that has ended cannot be saved. The limits are
    /// settings, not part of the state.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if episode.over {
            return Err(EnvError::State("the episode has ended; there is nothing to save".to_owned()));
        }
        Saved { task: episode.task.clone(), replies: episode.replies.clone() }.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved = Saved::read(snapshot)?;
        let mut episode = self.begin(&saved.task)?;
        for reply in &saved.replies {
            self.reply(&mut episode, reply)?;
            if episode.over {
                return Err(EnvError::State("the saved episode has ended".to_owned()));
            }
        }
        self.episode = Some(episode);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use turnwise_core::Purpose;

    use super::super::apis::Api;
    use super::super::document::BfclDocuments;
    use super::super::long_context::LongContext;
    use super::super::package::{BfclSet, BfclTask, Package};
    use super::super::python::Dict;
    use super::super::set::{BfclOptions, BfclTasks};
    use super::*;

    /// Two turns, and one between them that adds the function `mkdir`.
    fn tasks(options: BfclOptions) -> BfclTasks {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let task = BfclTask {
            id: "multi_turn_miss_func_0".into(),
            set: BfclSet::MissFunc,
            apis: vec![Api::Files],
            config: Dict::new(),
            turns: strings(&["Make a file a and a folder b.", "", "List all."]),
            added: HashMap::from([(1, strings(&["mkdir"]))]),
            gold: vec![strings(&["touch('a')"]), strings(&["mkdir('b')"]), strings(&["ls()"])],
        };
        let document = |name: &str| {
            let text = r#"{"description": "X. Tool description: Y.", "parameters": {"properties": {}}}"#;
            (name.to_owned(), text.to_owned())
        };
        let documents = HashMap::from([(Api::Files, vec![document("touch"), document("mkdir")])]);
        let long = Arc::new(LongContext::default());
        BfclTasks::new(Package { tasks: vec![task], documents, long }, options)
    }

    fn play(environment: &mut BfclEnv, set: &BfclTasks, replies: &[&str]) -> Vec<Step> {
        let task = &set.split("all").unwrap()[0];
        let seen = environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
        assert_eq!(seen.text(), "Functions:\ntouch(): Y.\nUser: Make a file a and a folder b.");
        replies.iter().map(|reply| environment.step(&Action::from(*reply)).unwrap()).collect()
    }

    const GOOD: [&str; 6] =
        ["[touch(file_name='a')]", "No folders.", "[mkdir('b')]", "Done.", "[ls()]", "Done."];

    #[test]
    fn calls_are_answered_and_words_end_the_turn() {
        let set = tasks(BfclOptions::default());
        let steps = play(&mut set.bfcl(), &set, &GOOD);
        let texts: Vec<_> = steps.iter().map(|step| step.observation.text().into_owned()).collect();
        assert_eq!(texts[0], "touch(file_name='a') -> None");
        assert!(texts[1].starts_with("More functions:\nmkdir(): Y.\nUser: "), "{}", texts[1]);
        assert_eq!(texts[3], "User: List all.");
        assert_eq!(texts[4], r#"ls() -> {"current_directory_content": ["a", "b"]}"#);
        let rewards: Vec<f64> = steps.iter().map(|step| step.reward).collect();
        assert_eq!(rewards, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        let last = steps.last().unwrap();
        assert!(last.terminated && last.success && last.progress == Some(1.0));
    }

    #[test]
    fn a_turn_that_fails_is_not_repaired() {
        let replies = ["Sorry.", "[touch('a'), mkdir('b')]", "Done.", "[ls()]", "Done."];
        let set = tasks(BfclOptions::default());
        let steps = play(&mut set.bfcl(), &set, &replies);
        let last = steps.last().unwrap();
        assert!(last.terminated && !last.success && last.reward == 0.0 && last.progress == Some(0.0));
        let set = tasks(BfclOptions { stop_at_failed_turn: true, ..BfclOptions::default() });
        let steps = play(&mut set.bfcl(), &set, &replies[..1]);
        assert!(steps[0].terminated && !steps[0].success);
    }

    #[test]
    fn too_many_calls_end_the_episode() {
        let set = tasks(BfclOptions { max_steps: 2, ..BfclOptions::default() });
        let steps = play(&mut set.bfcl(), &set, &["[pwd()]"; 3]);
        let over: Vec<bool> = steps.iter().map(|step| step.terminated).collect();
        assert_eq!(over, [false, false, true]);
        let limited = set.with_max_turns(2);
        assert!(play(&mut limited.bfcl(), &limited, &["[pwd()]"; 2])[1].truncated);
    }

    #[test]
    fn a_saved_episode_goes_on_as_it_would_have() {
        let set = tasks(BfclOptions::default());
        let mut first = set.bfcl();
        play(&mut first, &set, &GOOD[..3]);
        let saved = first.snapshot().unwrap().unwrap();
        let mut second = set.bfcl();
        second.restore(&saved).unwrap();
        for reply in &GOOD[3..] {
            let action = Action::from(*reply);
            assert_eq!(first.step(&action).unwrap(), second.step(&action).unwrap());
        }
        assert!(first.snapshot().is_err() && first.step(&Action::from("x")).is_err());
        assert!(second.restore(&Snapshot(b"{}".to_vec())).is_err());
    }

    #[test]
    fn hostile_replies_are_ordinary_steps() {
        let set =
            tasks(BfclOptions { documents: BfclDocuments::None, max_steps: 1000, ..BfclOptions::default() });
        let mut environment = set.bfcl();
        let task = &set.split("all").unwrap()[0];
        environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
        let deep = format!("[ls({}1)]", "(".repeat(100_000));
        let nested = format!("[touch({}1{})]", "[".repeat(60), "]".repeat(60));
        let many = format!("[echo('a' * {})]", i64::MAX);
        // A folder that is copied into itself has no end.
        let endless =
            ["[mkdir('d')]", "[cp('d', 'd')]", "[cp('d', 'd'), find(), du()]", "[ls(), cd('d'), find()]"];
        for reply in [deep.as_str(), &nested, &many, "[echo('\\u12')]", "[]*", "[ls(**{})]", "[touch(\u{0})]"]
            .into_iter()
            .chain(endless)
        {
            let step = environment.step(&Action::from(reply)).unwrap();
            assert!(step.reward == 0.0 && step.understood);
            if step.terminated {
                environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
            }
        }
        let step = environment.step(&Action::from("Done.")).unwrap();
        assert!(!step.success);
    }
}
