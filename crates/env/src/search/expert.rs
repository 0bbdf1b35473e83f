//! Expert that searches, then answers.

use turnwise_core::{EnvError, Observation, Purpose, Rng, Seed, Step, Task};

use super::answer::stands_in;
use super::environment::SearchEnv;
use super::format::shown;
use super::question::Question;
use super::set::SearchSet;
use crate::demonstration::{Demonstration, DemonstrationRequest, Demonstrations, play_all, play_episode};
use crate::world::Advisor;

pub(super) struct Expert {
    question: Question,
    seen: String,
    searches: usize,
}

impl Expert {
    pub(super) fn new(question: Question) -> Self {
        Self { question, seen: String::new(), searches: 0 }
    }

    fn read(&mut self, observation: &str) {
        if let Some(passages) = shown(observation) {
            self.searches += 1;
            self.seen.push('\n');
            self.seen.push_str(&passages);
        }
    }

    /// Returns the next action: first the planned searches whose passages were not seen yet or,
    /// without a plan, one search for the question. The last action is the golden answer, or
    /// `unknown` if the question has no plan and no passage contains the answer.
    fn next(&self) -> String {
        let is_shown = |title: &str| self.seen.contains(&format!("\"{title}\""));
        if let Some(search) = self.question.plan.iter().find(|search| !is_shown(&search.query)) {
            return searched(&search.query);
        }
        if self.question.plan.is_empty() && self.searches == 0 {
            return searched(&self.question.text);
        }
        answered(&self.answer().unwrap_or_else(|| "unknown".to_owned()))
    }

    fn answer(&self) -> Option<String> {
        if !self.question.plan.is_empty() {
            return self.question.golden.first().cloned();
        }
        let stands = |answer: &String| stands_in(&self.seen, std::slice::from_ref(answer));
        match &self.question.choices {
            None => self.question.golden.iter().find(|golden| stands(golden)).cloned(),
            Some(choices) => {
                let (label, text) = &choices.options[choices.right];
                stands(text).then(|| label.clone())
            }
        }
    }
}

impl Advisor for Expert {
    fn advise(&mut self, observation: &Observation) -> String {
        self.read(&observation.text());
        self.next()
    }
}

/// Formats a search. As in Search-R1's outputs, spaces inside the tags make words tokenize as they
/// do within sentences.
fn searched(query: &str) -> String {
    format!("<search> {query} </search>")
}

fn answered(answer: &str) -> String {
    format!("<answer> {answer} </answer>")
}

/// Plays demonstrations. With probability `early_answer_prob`, the expert guesses an answer instead
/// of making its last planned search, and SFT imitates the guess.
pub(super) fn demonstrate(
    set: &SearchSet,
    request: &DemonstrationRequest<'_>,
    early_answer_prob: f64,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        play(set, task, request, early_answer_prob, &mut seed.rng())
    })
}

fn play(
    set: &SearchSet,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    early_answer_prob: f64,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let question = set.question(&task.id)?;
    let early = match question.plan.split_last() {
        Some((search, before)) if rng.chance(early_answer_prob) => Some((before.len(), &search.early_answer)),
        _ => None,
    };
    let mut expert = Expert::new(question.clone());
    let mut searches = 0;
    let act = |_: &SearchEnv, seen: &Observation| {
        expert.read(&seen.text());
        let imitate = !rng.chance(request.invalid_action_prob);
        let action = match early {
            _ if !imitate => question.text.clone(),
            Some((last, answer)) if searches == last => answered(answer),
            _ => {
                searches += 1;
                expert.next()
            }
        };
        Some((action, imitate))
    };
    let seed = Seed::derive(0, Purpose::Environment, &[]);
    let worth = |step: &Step| step.terminated && (step.success || early.is_some());
    play_episode(&mut set.search(), task, seed, request, act, worth)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use turnwise_core::{Action, Environment as _, TaskSet as _};
    use turnwise_retrieval::Bm25Retriever;

    use super::super::format::ObservationFormat;
    use super::super::generator::{QuestionKind, SearchGenerator, generate};
    use super::super::set::SearchOptions;
    use super::*;

    fn set(format: ObservationFormat) -> SearchSet {
        let generator = SearchGenerator {
            people: 600,
            towns: 60,
            works: 100,
            events: 60,
            train: 400,
            valid: 0,
            test: 20,
            ..SearchGenerator::default()
        };
        let made = generate(&generator).unwrap();
        let retriever = Arc::new(Bm25Retriever::in_memory(made.passages).unwrap());
        SearchSet::new(made.splits, retriever, SearchOptions { format, top_k: 1, ..SearchOptions::default() })
            .with_max_steps(5)
    }

    fn request(invalid_action_prob: f64) -> DemonstrationRequest<'static> {
        DemonstrationRequest {
            count: 400,
            invalid_action_prob,
            max_turns: 5,
            seed: 3,
            ..DemonstrationRequest::default()
        }
    }

    #[test]
    fn the_expert_answers_and_the_early_one_errs_as_often_as_asked() {
        for format in [ObservationFormat::SearchR1, ObservationFormat::VerlAgent] {
            let set = set(format);
            let won = |early: f64, invalid: f64| {
                let made = demonstrate(&set, &request(invalid), early).unwrap();
                assert_eq!(made.episodes.len() + made.dropped, 400);
                let reward = |episode: &Demonstration| episode.turns.last().unwrap().reward;
                (made.episodes.iter().map(reward).sum::<f64>(), made.episodes.len() as f64)
            };
            let (careful, all) = won(0.0, 0.0);
            assert!(careful == all && all > 392.0, "{careful} of {all}");
            let (early, all) = won(0.5, 0.0);
            assert!(all > 392.0 && (160.0..260.0).contains(&early), "{early} of {all}");
            let (won, all) = won(0.0, 0.2);
            assert!(won == all && all > 280.0, "{won} of {all}");
        }
    }

    #[test]
    fn an_episode_looks_up_what_leads_to_its_answer() {
        let set = set(ObservationFormat::SearchR1);
        let made = demonstrate(&set, &request(0.0), 0.0).unwrap();
        let episode =
            made.episodes.iter().find(|episode| episode.task.kind == QuestionKind::TwoHop.name()).unwrap();
        let question = set.question(&episode.task.id).unwrap();
        let actions: Vec<&str> = episode.turns.iter().map(|turn| turn.action.as_str()).collect();
        let plan: Vec<String> = question.plan.iter().map(|search| searched(&search.query)).collect();
        assert_eq!(actions[..2], plan);
        assert_eq!(actions[2], answered(&question.golden[0]));
        assert!(episode.turns[1].observation.contains(&question.plan[1].query));
    }

    #[test]
    fn advice_leads_to_the_answer_from_anywhere() {
        let set = set(ObservationFormat::SearchR1);
        for task in set.tasks("test").unwrap() {
            let mut environment = set.search();
            let mut expert = Expert::new(set.question(&task.id).unwrap().clone());
            let mut observation =
                environment.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
            expert.advise(&observation);
            observation = environment.step(&Action::from("what?")).unwrap().observation;
            loop {
                let step = environment.step(&Action::from(expert.advise(&observation))).unwrap();
                observation = step.observation;
                if step.terminated || step.truncated {
                    assert!(step.success, "{}: {}", task.id, expert.seen);
                    break;
                }
            }
        }
    }

    fn block(contents: &str) -> String {
        let passage = turnwise_retrieval::Passage { id: "0".into(), contents: contents.into() };
        let hit = turnwise_retrieval::Hit { passage: Arc::new(passage), score: 1.0 };
        ObservationFormat::SearchR1.information(&[hit])
    }

    fn advised(question: &Question, contents: &str) -> String {
        let mut expert = Expert::new(question.clone());
        expert.read(&question.prompt());
        assert_eq!(expert.next(), searched(&question.text));
        expert.read(&block(contents));
        expert.next()
    }

    fn open_question(text: &str, golden: &[&str]) -> Question {
        let golden = golden.iter().map(|golden| (*golden).to_owned()).collect();
        Question { text: text.into(), golden, ..Question::default() }
    }

    #[test]
    fn without_a_plan_the_expert_answers_only_what_it_has_read() {
        let built = open_question("Who built it?", &["Ada Fenn", "the other"]);
        for (contents, answer) in [
            ("\"It\"\nIt was built by Ada Fenn.", "Ada Fenn"),
            ("\"It\"\nPerhaps the other did.", "the other"),
            ("\"It\"\nNobody knows.", "unknown"),
        ] {
            assert_eq!(advised(&built, contents), answered(answer));
        }
        let older = open_question("Who is older, Ada Fenn or Bo Lind?", &["Bo Lind"]);
        assert_eq!(advised(&older, "\"Ada Fenn\"\nAda Fenn was born in 1901."), answered("unknown"));
        let cancer = open_question("Is it benign?", &["no"]);
        assert_eq!(advised(&cancer, "\"It\"\nA carcinoma."), answered("unknown"));
        assert_eq!(advised(&cancer, "\"It\"\nIs it? No."), answered("no"));
    }

    #[test]
    fn options_in_the_question_give_nothing_away() {
        let options = [("A", "rest"), ("B", "surgery")].map(|(label, text)| (label.into(), text.into()));
        let choices = super::super::choice::Choices { options: options.to_vec(), right: 1 };
        let question = Question { choices: Some(choices), ..open_question("What helps?", &["B"]) };
        assert_eq!(advised(&question, "\"Help\"\nNothing is known."), answered("unknown"));
        assert_eq!(advised(&question, "\"Help\"\nSurgery is."), answered("B"));
    }

    #[test]
    fn a_search_counts_once_it_was_made() {
        let mut expert = Expert::new(open_question("Who built it?", &["Ada Fenn"]));
        expert.read("Who built it?");
        for _ in 0..3 {
            assert_eq!(expert.next(), searched("Who built it?"));
            expert.read(ObservationFormat::SearchR1.invalid());
        }
        expert.read(&block("\"It\"\nAda Fenn did."));
        assert_eq!(expert.next(), answered("Ada Fenn"));
    }

    #[test]
    fn both_formats_are_read() {
        let passage = turnwise_retrieval::Passage {
            id: "0".into(),
            contents: "\"Zürich\"\nSchloß Wyl lies there.\nAda Fenn".into(),
        };
        let hit = turnwise_retrieval::Hit { passage: Arc::new(passage), score: 1.0 };
        for format in [ObservationFormat::SearchR1, ObservationFormat::VerlAgent] {
            let block = format.information(std::slice::from_ref(&hit));
            for golden in ["Zürich", "Schloß Wyl", "Ada Fenn"] {
                let mut expert = Expert::new(open_question("Where?", &[golden]));
                expert.read(&block);
                assert_eq!(expert.next(), answered(golden), "{block}");
            }
        }
    }
}
