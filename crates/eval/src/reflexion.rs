//! Plays several trials of each task, with reflections in between.

use turnwise_core::{Reasoning, SampleError, SampleRequest, Sampler, SamplingParams, Seed, Task, Trajectory};
use turnwise_train::rollout::prompting::Prompter;
use turnwise_train::rollout::{EnvRunner, Job, Played, Rollout, RolloutProgress, is_faulty};
use turnwise_train::{TrainError, sampling_params};

use crate::EvalError;

/// Maximum reflections in a prompt; the latest are kept.
const MEMORY: usize = 3;

const REFLECTION_TOKENS: usize = 256;

/// Each task's trials, and the number of resampled episodes.
type Trials = (Vec<Vec<Trajectory>>, usize);

/// Plays each task until it is solved, at most `trials` times; a task whose environment failed is
/// not retried. Returns `None` if stopped.
pub(crate) fn play<S: Sampler + Send>(
    runner: &EnvRunner,
    rollout: &Rollout<'_>,
    tasks: &[Task],
    trials: usize,
    samplers: &mut [S],
    tick: &mut impl FnMut(&RolloutProgress),
) -> Result<Option<Trials>, EvalError> {
    let mut played: Vec<Vec<Trajectory>> = vec![Vec::new(); tasks.len()];
    let mut notes: Vec<Vec<String>> = vec![Vec::new(); tasks.len()];
    let mut open: Vec<usize> = (0..tasks.len()).collect();
    let mut resamples = 0;
    for trial in 0..trials {
        let jobs: Vec<Job> = open
            .iter()
            .map(|&index| {
                let preamble = preamble(&notes[index]);
                Job { preamble, ..Job::new(tasks[index].clone(), index, trial) }
            })
            .collect();
        let played_now = runner.play(rollout, &jobs, samplers, &mut *tick)?;
        let Some(Played { trajectories, resampled }) = played_now else { return Ok(None) };
        resamples += resampled;
        // Failures of the environment need no reflection.
        let failed: Vec<Trajectory> = trajectories
            .iter()
            .filter(|trajectory| !trajectory.success && !is_faulty(trajectory))
            .cloned()
            .collect();
        open = failed.iter().map(|trajectory| trajectory.group).collect();
        for trajectory in trajectories {
            played[trajectory.group].push(trajectory);
        }
        if open.is_empty() || trial + 1 == trials {
            break;
        }
        let reflections = reflect(runner, rollout, &failed, &notes, trial, samplers)?;
        if rollout.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(None);
        }
        for (index, reflection) in open.iter().zip(reflections) {
            notes[*index].extend(reflection);
        }
    }
    Ok(Some((played, resamples)))
}

fn preamble(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "You have tried this task before and did not finish it. Afterwards you wrote down what to do better:\n",
    );
    for note in &notes[notes.len().saturating_sub(MEMORY)..] {
        text.push_str(&format!("- {note}\n"));
    }
    text.push('\n');
    text
}

fn reflect<S: Sampler + Send>(
    runner: &EnvRunner,
    rollout: &Rollout<'_>,
    failed: &[Trajectory],
    notes: &[Vec<String>],
    trial: usize,
    samplers: &mut [S],
) -> Result<Vec<Option<String>>, EvalError> {
    let config = rollout.config;
    // Reflections read the episode as text.
    let prompter = Prompter { pictures: None, ..runner.prompter() };
    let params = SamplingParams {
        max_tokens: REFLECTION_TOKENS,
        // In plain text, a reflection ends with a blank line.
        stop_strings: if prompter.chat.is_some() { Vec::new() } else { vec!["\n\n".to_owned()] },
        stop_tokens: prompter
            .chat
            .map_or(prompter.tokenizer.end_tokens(), |chat| chat.stop_tokens())
            .to_vec(),
        ..sampling_params(config, runner.prompter(), rollout.temperature)
    };
    let room = config.rollout.max_model_len.saturating_sub(REFLECTION_TOKENS);
    let mut requests = Vec::with_capacity(failed.len());
    for (session, trajectory) in failed.iter().enumerate() {
        let coordinates = [rollout.step, trajectory.group as u64, trial as u64, u64::MAX];
        let prompt = fitting(prompter, trajectory, &notes[trajectory.group], room);
        requests.push(prompt.map(|prompt| SampleRequest {
            session: session as u64,
            prompt,
            params: params.clone(),
            seed: Seed::derive(config.seed, rollout.purpose, &coordinates),
        }));
    }
    let replies = complete(samplers, &requests)?;
    Ok(replies.into_iter().map(|reply| said(&prompter.response(&reply?))).collect())
}

/// Returns the reflection as one line; `None` if it is empty or the model's reasoning was cut off.
fn said(reply: &str) -> Option<String> {
    let answer = Reasoning::of_continued(reply).answer()?;
    let words = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    (!words.is_empty()).then_some(words)
}

/// Returns the prompt for a reflection, dropping early turns until it fits; `None` if it cannot
/// fit.
fn fitting(
    prompter: Prompter<'_>,
    trajectory: &Trajectory,
    notes: &[String],
    room: usize,
) -> Option<Vec<u32>> {
    for skipped in 0..=trajectory.turns.len() {
        let text = question(trajectory, notes, skipped);
        let tokens = prompter.start(&text, &[]).ok()?;
        if tokens.len() <= room {
            return Some(tokens);
        }
    }
    None
}

fn question(trajectory: &Trajectory, notes: &[String], skipped: usize) -> String {
    let mut text = format!(
        "Below is an attempt at a task that did not finish it. Find out what went wrong, and write a short plan for the \
         next attempt: what to do differently, step by step, with the names that matter. Two or three sentences, no \
         more.\n\nThe task: {}\n",
        trajectory.task.goal.trim()
    );
    if !notes.is_empty() {
        text.push_str("\nWhat was noted after earlier attempts:\n");
        for note in &notes[notes.len().saturating_sub(MEMORY)..] {
            text.push_str(&format!("- {note}\n"));
        }
    }
    text.push_str("\nThe attempt:\n");
    if skipped > 0 {
        text.push_str("(its beginning is left out)\n");
    }
    for turn in &trajectory.turns[skipped..] {
        let said = turn.response.trim();
        let said = said.strip_suffix("Observation:").unwrap_or(said).trim_end();
        text.push_str(&format!("Observation: {}\n{said}\n", turn.observation.trim()));
    }
    if !trajectory.final_observation.is_empty() {
        text.push_str(&format!("Observation: {}\n", trajectory.final_observation.trim()));
    }
    text.push_str("\nThe plan for the next attempt:");
    text
}

fn complete<S: Sampler + Send>(
    samplers: &mut [S],
    requests: &[Option<SampleRequest>],
) -> Result<Vec<Option<Vec<u32>>>, EvalError> {
    let lanes = samplers.len().max(1);
    let mut replies = vec![None; requests.len()];
    let answered = std::thread::scope(|scope| {
        let handles: Vec<_> = samplers
            .iter_mut()
            .enumerate()
            .map(|(lane, sampler)| {
                let mine = requests.iter().enumerate().skip(lane).step_by(lanes);
                scope.spawn(move || answer(sampler, mine))
            })
            .collect();
        let joined = handles.into_iter().map(|handle| handle.join().unwrap_or(Err(TrainError::Thread)));
        joined.collect::<Result<Vec<_>, TrainError>>()
    })?;
    for (index, reply) in answered.into_iter().flatten() {
        replies[index] = Some(reply);
    }
    Ok(replies)
}

fn answer<'a, S: Sampler>(
    sampler: &mut S,
    requests: impl Iterator<Item = (usize, &'a Option<SampleRequest>)>,
) -> Result<Vec<(usize, Vec<u32>)>, TrainError> {
    let mut waiting = Vec::new();
    for (index, request) in requests.filter_map(|(index, request)| Some((index, request.clone()?))) {
        let session = request.session;
        match sampler.submit(request) {
            Ok(id) => waiting.push((id, index, session)),
            Err(SampleError::Request { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut replies = Vec::new();
    while !waiting.is_empty() {
        let completions = sampler.poll()?;
        for (request, _) in sampler.take_failures() {
            if let Some(position) = waiting.iter().position(|(id, _, _)| *id == request) {
                sampler.end_session(waiting.swap_remove(position).2);
            }
        }
        for completion in completions {
            let Some(position) = waiting.iter().position(|(id, _, _)| *id == completion.request) else {
                continue;
            };
            let (_, index, session) = waiting.swap_remove(position);
            sampler.end_session(session);
            replies.push((index, completion.tokens));
        }
    }
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::{StopReason, Turn};
    use turnwise_env::prompt::PromptTemplate;
    use turnwise_text::{Tokenizer, TokenizerConfig};

    #[test]
    fn reasoning_is_no_reflection() {
        for (reply, reflection) in [
            ("<think>Where? Shelf 2 perhaps.</think>\nLook in\nshelf 1.", Some("Look in shelf 1.")),
            ("Where?</think> Look in shelf 1.", Some("Look in shelf 1.")),
            ("Look in shelf 1.", Some("Look in shelf 1.")),
            ("<think>Where? Shelf 2 per", None),
            ("<think>Where?</think>\n", None),
        ] {
            assert_eq!(said(reply).as_deref(), reflection, "{reply}");
        }
    }

    #[test]
    fn an_attempt_too_long_to_be_read_loses_its_beginning() {
        let turn = |number: usize| Turn {
            observation: format!("Page {number}. {}", "long ".repeat(50)),
            response: format!("Thought: on.\nAction: go {number}\nObservation:"),
            ..Turn::default()
        };
        let trajectory = Trajectory {
            final_observation: "The end.".into(),
            stop: StopReason::MaxTurns,
            ..Trajectory::new(Task::new("t", "k", "Find it."), (0..10).map(turn).collect())
        };
        let template = PromptTemplate::named("alfworld-react").unwrap();
        let tokenizer = Tokenizer::train(["a"].into_iter(), &TokenizerConfig::default()).unwrap();
        let prompter = Prompter { template: &template, tokenizer: &tokenizer, chat: None, pictures: None };
        let shown = |room: usize| {
            let tokens = fitting(prompter, &trajectory, &[], room)?;
            assert!(tokens.len() <= room);
            Some(tokenizer.decode(&tokens))
        };
        let whole = shown(10_000).unwrap();
        assert!(whole.contains("Page 0.") && !whole.contains("left out"), "{whole}");
        assert!(whole.contains("Action: go 9\nObservation: The end.\n"), "{whole}");
        let part = shown(1_500).unwrap();
        assert!(
            !part.contains("Page 0.")
                && part.contains("Page 9.")
                && part.contains("(its beginning is left out)")
        );
        assert_eq!(shown(100), None);
    }
}
