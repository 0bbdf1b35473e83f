//! Tests of ReAct and Reflexion with a scripted sampler.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::{
    Action, Completion, EnvError, Environment, FinishReason, Observation, RequestId, SampleError,
    SampleRequest, Sampler, Seed, Step, Task, Trajectory,
};
use turnwise_env::dataset::Dataset;
use turnwise_env::panel::Panel;
use turnwise_eval::{Agent, EvalError, Evaluation, PlaySettings, Rate, evaluate_with};
use turnwise_text::chat::ChatTemplate;
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::Layout;
use turnwise_train::rollout::EnvRunner;
use turnwise_train::setup::World;
use turnwise_train::{Config, Registries};

/// An environment with one door, solved by opening it within two turns.
struct Door {
    turns: usize,
}

fn seen(text: &str) -> Observation {
    Observation::new(text).with_admissible(vec!["open door".into(), "wait".into()])
}

impl Environment for Door {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.turns = 0;
        if task.id == "cellar" {
            return Err(EnvError::Other("it is locked".into()));
        }
        Ok(seen(&format!("There is a door. {}", task.goal)))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        self.turns += 1;
        let success = action.text() == "open door";
        Ok(Step {
            observation: seen("Still here."),
            reward: f64::from(u8::from(success)),
            progress: None,
            terminated: success,
            truncated: self.turns == 2,
            success,
            understood: true,
            rewards: Vec::new(),
            metrics: Vec::new(),
        })
    }
}

fn tasks() -> Vec<Task> {
    let task = |name: &str| Task::new(name, "door", format!("Leave the {name}."));
    ["house", "hut", "cave"].map(task).to_vec()
}

/// Opens the door of the house at once, that of the hut after a reflection, and that of the cave
/// never.
struct Script<'a> {
    tokenizer: &'a Tokenizer,
    waiting: Vec<(RequestId, String)>,
    next: RequestId,
    prompts: Vec<String>,
}

impl Sampler for Script<'_> {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        let prompt = self.tokenizer.decode(&request.prompt);
        let opens = "Thought: Out.\nAction: open door";
        let reply = if prompt.contains("The plan for the next attempt") {
            "<think>\nIt was shut.\n</think>\n\nOpen the door\nat once."
        } else if prompt.contains("Leave the house")
            || prompt.contains("Leave the hut") && prompt.contains("- Open the door at once.\n")
        {
            opens
        } else {
            "Thought: Patience.\nAction: wait"
        };
        self.prompts.push(prompt);
        self.next += 1;
        self.waiting.push((self.next, reply.to_owned()));
        Ok(self.next)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let tokenizer = self.tokenizer;
        let completion = |(request, reply): (RequestId, String)| {
            // In plain text, the reply continues with the environment's words or ends with a blank
            // line.
            let end = match tokenizer.chat_template() {
                Some(_) => "<|im_end|>",
                None if reply.contains("Action:") => "\nObservation:",
                None => "\n\n",
            };
            let tokens = tokenizer.encode(&format!("{reply}{end}"));
            Completion {
                request,
                logprobs: vec![0.0; tokens.len()],
                entropies: vec![0.0; tokens.len()],
                tokens,
                finish: FinishReason::Stop,
                weights_version: 0,
            }
        };
        Ok(self.waiting.drain(..).map(completion).collect())
    }

    fn end_session(&mut self, _session: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A chat template that rejects requests for a plan.
const REFUSING: &str = "{% for message in messages %}{% if 'The plan for the next attempt' in message.content %}\
                        {{ raise_exception('no plans') }}{% endif %}<|im_start|>{{ message.role }}\n\
                        {{ message.content }}<|im_end|>\n{% endfor %}\
                        {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn tokenizer(chat: Option<&str>) -> Tokenizer {
    let special_tokens = ["<|im_start|>", "<|im_end|>"].map(String::from).to_vec();
    let config = TokenizerConfig { special_tokens, ..TokenizerConfig::default() };
    let tokenizer = Tokenizer::train(["a"].into_iter(), &config).unwrap();
    let end = tokenizer.token_id("<|im_end|>").unwrap();
    match chat {
        Some(source) => tokenizer.with_chat(ChatTemplate::from_source(source).unwrap(), vec![end]),
        None => tokenizer,
    }
}

/// The result, the trajectories and the prompts.
type Played = (Evaluation, Vec<Trajectory>, Vec<String>);

fn play(agent: Agent, trials: usize, chat: Option<&str>, context: usize) -> Played {
    try_to_play(agent, trials, chat, context).unwrap()
}

fn try_to_play(agent: Agent, trials: usize, chat: Option<&str>, context: usize) -> Result<Played, EvalError> {
    play_tasks(agent, trials, chat, context, tasks())
}

fn play_tasks(
    agent: Agent,
    trials: usize,
    chat: Option<&str>,
    context: usize,
    tasks: Vec<Task>,
) -> Result<Played, EvalError> {
    let tokenizer = Arc::new(tokenizer(chat));
    let (mut config, registries) = (Config::default(), Registries::builtin());
    agent.configure(&mut config, &registries).unwrap();
    config.rollout.max_model_len = context;
    let stop = AtomicBool::new(false);
    let house = Dataset::new(|| Door { turns: 0 }).split("test", tasks.clone());
    let runner =
        EnvRunner::new(&config, &registries, World::of_tasks(Arc::new(house)), Arc::clone(&tokenizer), None)?;
    let settings =
        PlaySettings { config: &config, runner: &runner, temperature: 0.0, agent, trials, stop: &stop };
    let panel = Panel { env: "alfworld".into(), split: "test".into(), tasks, hash: "h".into() };
    let script = || Script { tokenizer: &tokenizer, waiting: Vec::new(), next: 0, prompts: Vec::new() };
    let mut scripts = [script(), script()];
    let (evaluation, trajectories) = evaluate_with(&settings, &panel, &mut scripts, |_| {})?;
    let prompts = scripts.into_iter().flat_map(|script| script.prompts).collect();
    Ok((evaluation, trajectories, prompts))
}

#[test]
fn react_keeps_its_thoughts() {
    let (evaluation, trajectories, prompts) = play(Agent::React, 1, Some(CHATML), 8192);
    assert_eq!(evaluation.agent, Agent::React);
    assert_eq!(evaluation.success, Rate::new(1, 3));
    assert_eq!((evaluation.trials.len(), trajectories.len()), (0, 3));
    assert_eq!(evaluation.invalid_action_frac, 0.0);
    let later = prompts.iter().find(|prompt| prompt.contains("Still here.")).unwrap();
    assert!(later.contains("Thought: Patience.\nAction: wait<|im_end|>"), "{later}");
}

#[test]
fn reflexion_tries_again_with_what_it_learnt() {
    for chat in [Some(CHATML), None] {
        let (evaluation, trajectories, prompts) = play(Agent::Reflexion, 3, chat, 8192);
        assert_eq!(evaluation.success, Rate::new(2, 3));
        let of = |trial: usize| &evaluation.trials[trial];
        assert_eq!((of(0).trial, of(0).solved, of(0).success), (1, Rate::new(1, 3), Rate::new(1, 3)));
        assert_eq!((of(1).trial, of(1).solved, of(1).success), (2, Rate::new(1, 2), Rate::new(2, 3)));
        assert_eq!((of(2).trial, of(2).solved, of(2).success), (3, Rate::new(0, 1), Rate::new(2, 3)));
        // The house is tried once, the hut twice, the cave three times; `sample` is the trial.
        let trials: Vec<(usize, usize)> =
            trajectories.iter().map(|trajectory| (trajectory.group, trajectory.sample)).collect();
        assert_eq!(trials, [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]);
        // The plan is written from the failed attempt, and earlier plans are shown with it.
        let asked: Vec<&String> =
            prompts.iter().filter(|prompt| prompt.contains("The plan for the next attempt")).collect();
        assert_eq!(asked.len(), 3, "hut and cave after the first trial, the cave after the second");
        assert!(asked.iter().all(|prompt| prompt.contains("Action: wait\nObservation: Still here.")));
        assert_eq!(asked.iter().filter(|prompt| prompt.contains("- Open the door at once.")).count(), 1);
        // The cave's third trial shows two notes.
        let most = prompts.iter().map(|prompt| prompt.matches("- Open the door at once.\n").count()).max();
        assert_eq!(most, Some(2));
        let json = serde_json::to_value(&evaluation).unwrap();
        assert_eq!(json["agent"], "reflexion");
        assert_eq!(json["trials"][1]["success"]["successes"], 2);
        assert_eq!(serde_json::from_value::<Evaluation>(json).unwrap(), evaluation);
    }
}

#[test]
fn episodes_that_are_played_again_are_counted() {
    let tasks = [tasks(), vec![Task::new("cellar", "door", "Leave the cellar.")]].concat();
    for agent in [Agent::React, Agent::Reflexion] {
        let (evaluation, ..) = play_tasks(agent, 2, Some(CHATML), 8192, tasks.clone()).unwrap();
        let resamples = usize::try_from(Config::default().rollout.max_resamples).unwrap();
        assert_eq!((evaluation.failed, evaluation.resampled), (1, resamples), "{agent:?}");
        assert_eq!(evaluation.success.trials, 3);
        let (evaluation, ..) = play(agent, 2, Some(CHATML), 8192);
        assert_eq!((evaluation.failed, evaluation.resampled), (0, 0));
    }
}

#[test]
fn what_is_solved_at_once_is_not_tried_again() {
    let (evaluation, _, prompts) = play(Agent::Reflexion, 1, Some(CHATML), 8192);
    assert_eq!((evaluation.success, evaluation.trials.len()), (Rate::new(1, 3), 1));
    assert!(
        prompts.iter().all(|prompt| !prompt.contains("The plan for the next attempt")),
        "no trial follows"
    );
}

#[test]
fn a_reflection_that_the_chat_template_refuses_is_left_out() {
    let (evaluation, trajectories, prompts) = play(Agent::Reflexion, 2, Some(REFUSING), 8192);
    assert_eq!((evaluation.success, evaluation.failed), (Rate::new(1, 3), 0));
    assert_eq!(trajectories.len(), 5, "hut and cave are tried again");
    assert!(prompts.iter().all(|prompt| !prompt.contains("The plan for the next attempt")));
}

#[test]
fn no_trials_are_refused() {
    let refused = try_to_play(Agent::Reflexion, 0, Some(CHATML), 8192);
    assert!(matches!(refused, Err(EvalError::NoTrials)));
    // ReAct ignores the number of trials.
    assert_eq!(play(Agent::React, 0, Some(CHATML), 8192).0.success, Rate::new(1, 3));
}

#[test]
fn a_context_too_small_for_anything_is_a_failure_and_no_error() {
    let (evaluation, _, prompts) = play(Agent::Reflexion, 2, Some(CHATML), 400);
    assert!(prompts.is_empty(), "nothing fits");
    assert_eq!(evaluation.success, Rate::new(0, 3));
}

#[test]
fn the_agents_prompts_are_those_of_the_environment() {
    let mut config = Config::default();
    Agent::Plain.configure(&mut config, &Registries::builtin()).unwrap();
    assert_eq!(config, Config::default());
    config.prompt.layout = Layout::Windowed;
    config.env.kind = "webshop".into();
    Agent::Reflexion.configure(&mut config, &Registries::builtin()).unwrap();
    assert_eq!(
        (config.prompt.template.as_str(), config.prompt.layout),
        ("webshop-react", Layout::Concatenated)
    );
    let text = r#"{"split":"s","panel":"p","temperature":0.0,"seed":0,"success":{"successes":0,"trials":0,"rate":0.0,
        "low":0.0,"high":1.0},"kinds":{},"mean_turns":0.0,"mean_return":0.0,"invalid_action_frac":0.0,
        "inadmissible_rate":0.0,"seconds":0.0}"#;
    let old: Evaluation = serde_json::from_str(text).unwrap();
    assert_eq!((old.agent, old.trials.len()), (Agent::Plain, 0), "results of before are read");
}
