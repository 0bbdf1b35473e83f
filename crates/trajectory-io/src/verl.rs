//! verl's rollout dumps, `trainer.rollout_data_dir/<step>.jsonl`. Each line is a sample with
//! `input`, `output`, `score`, `step`, and keys of the reward function (`uid`, `acc` ..).
//!
//! `output` is the decoded text of all turns and of the environment's messages. It is split at the
//! template's headings, which are lines with only `user`, `tool` or `assistant`. Llama 3's headings
//! are these three words at the end of a message, without a line break before them; `input` then
//! ends like `Find it.assistant` and a blank line. The last turn gets the score; `acc` is success. Samples with the same
//! `uid`, or, if they have none, the same step and `input`, form a group.
//!
//! verl 0.9's trainer (`trainer.v1`) writes the `uid` `{prompt}_{session}_{output}`: each prompt is
//! a group, and each session is a trajectory of outputs in numerical order. The first turn of a
//! later output observes the part of its `input` that follows the policy's last message. Padding
//! lines (`pad...`) are dropped.
//!
//! The dumps lack entropies, turn rewards, progress and values.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::decoded::Headings;
use crate::dump::Record;
use crate::{DumpError, chat, decoded, lines};

#[derive(Deserialize)]
struct SampleLine {
    input: String,
    output: String,
    score: Option<Value>,
    #[serde(default)]
    step: u64,
    uid: Option<Value>,
    acc: Option<Value>,
}

struct Sample {
    line: usize,
    read: SampleLine,
    score: f64,
}

/// A `uid` of verl 0.9's trainer.
#[derive(Debug, PartialEq)]
struct Key<'a> {
    /// The prompt's UUID, or padding.
    prompt: &'a str,
    session: u64,
    output: u64,
}

impl<'a> Key<'a> {
    /// Parses a `uid`. Returns `None` for a text of any other form, which is the name of a group.
    fn of(uid: &'a str) -> Option<Self> {
        let mut parts = uid.rsplitn(3, '_');
        let (output, session) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let key = Self { prompt: parts.next()?, session, output };
        (key.is_padding() || is_uuid(key.prompt)).then_some(key)
    }

    fn is_padding(&self) -> bool {
        let hex = |rest: &str| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.prompt.strip_prefix("pad").is_some_and(hex)
    }
}

fn is_uuid(text: &str) -> bool {
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

pub(crate) fn records(path: &Path) -> Result<Vec<Record>, DumpError> {
    let mut trajectories: Vec<BTreeMap<u64, Sample>> = Vec::new();
    let mut sessions: HashMap<(u64, String, u64), usize> = HashMap::new();
    lines::each(path, |line, text| {
        let used = |keys: &[&str]| matches!(keys, ["input" | "output" | "score" | "step" | "uid" | "acc"]);
        let read: SampleLine = lines::parse(path, line, text, used)?;
        let key = read.uid.as_ref().and_then(Value::as_str).and_then(Key::of);
        if key.as_ref().is_some_and(Key::is_padding) {
            return Ok(true);
        }
        let Some(score) = read.score.as_ref().and_then(Value::as_f64) else {
            let reason = "`score` is missing or no number; every method needs the outcome";
            return Err(DumpError::line(path, line, reason));
        };
        let next = trajectories.len();
        let (index, place) = key.map_or((next, 0), |key| {
            let session = (read.step, key.prompt.to_owned(), key.session);
            (*sessions.entry(session).or_insert(next), key.output)
        });
        if index == next {
            trajectories.push(BTreeMap::new());
        }
        if let Some(other) = trajectories[index].insert(place, Sample { line, read, score }) {
            let reason = format!(
                "its `uid` is that of line {} too, and verl gives each sample of a step its own; leave one of them out",
                other.line
            );
            return Err(DumpError::line(path, line, reason));
        }
        Ok(true)
    })?;
    let mut records: Vec<Record> = trajectories.iter().filter_map(trajectory).collect();
    chat::name_groups(&mut records);
    Ok(records)
}

/// Joins consecutive samples into one trajectory, with the outcome of the last sample, which verl
/// copies to the others.
fn trajectory(samples: &BTreeMap<u64, Sample>) -> Option<Record> {
    let (first, last) = (samples.values().next()?, samples.values().next_back()?);
    let success = match &last.read.acc {
        Some(Value::Bool(solved)) => Some(*solved),
        Some(Value::Number(share)) => share.as_f64().map(|share| share >= 0.5),
        _ => None,
    };
    let (key, group) = match &first.read.uid {
        Some(Value::String(uid)) => {
            let group = Value::from(Key::of(uid).map_or(uid.as_str(), |key| key.prompt));
            (group.to_string(), group)
        }
        Some(uid @ Value::Number(_)) => (uid.to_string(), uid.clone()),
        _ => (first.read.input.clone(), Value::Null),
    };
    let mut messages = Vec::new();
    for (place, Sample { read, .. }) in samples.values().enumerate() {
        let heard = if place == 0 { None } else { last_heard(&read.input) };
        messages.push(heard.unwrap_or_else(|| chat::Message::given(read.input.clone())));
        messages.extend(decoded::split(&read.output, Headings::of(&read.input)));
    }
    let goal = decoded::last_prompt(&first.read.input).to_owned();
    Some(chat::record(first.line, first.read.step, key, group, goal, messages, last.score, success))
}

fn last_heard(input: &str) -> Option<chat::Message> {
    decoded::split(input, Headings::of(input)).into_iter().rfind(|message| !message.sampled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Dump, ReadOptions, read};

    const PROMPTS: [&str; 2] =
        ["0b9a4c1e-53d2-4f0a-9c57-2f6f1f0f7a11", "f3c1d5aa-8e0b-4b52-a2b4-90d6a1c2e3f4"];

    fn dump(samples: &[Value]) -> Result<Dump, DumpError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.jsonl");
        let text: Vec<String> = samples.iter().map(Value::to_string).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        read(&path, &ReadOptions::default())
    }

    fn sample(uid: &str, output: &str, score: f64) -> Value {
        json!({"input": "Find it.", "output": output, "score": score, "step": 7, "uid": uid})
    }

    #[test]
    fn a_uid_of_a_single_sample_names_prompt_and_session() {
        let [one, two] = PROMPTS;
        let read = dump(&[
            sample(&format!("{one}_0_0"), "a", 1.0),
            sample(&format!("{one}_1_0"), "b", 0.0),
            sample(&format!("{two}_0_0"), "c", 1.0),
            sample(&format!("{two}_11_0"), "d", 0.0),
            sample(&format!("pad{}_0_0", "0123456789abcdef".repeat(2)), "", 0.0),
            sample(&format!("pad{}_1_0", "0123456789abcdef".repeat(2)), "", 0.0),
        ])
        .unwrap();
        let [step] = read.batches.as_slice() else { panic!("{read:?}") };
        let sizes: Vec<usize> = step.batch.groups.iter().map(|group| group.trajectories.len()).collect();
        assert_eq!(sizes, [2, 2]);
        let groups: Vec<&Value> = step.origins.iter().map(|origins| &origins[0].group).collect();
        assert_eq!(groups, [&json!(one), &json!(two)]);
    }

    #[test]
    fn the_outputs_of_a_session_are_one_trajectory() {
        let uid = |session: u64, output: u64| format!("{}_{session}_{output}", PROMPTS[0]);
        let mut later = sample(&uid(0, 1), "open bag", 1.0);
        later["input"] = json!("Find it.\nassistant\nopen box\nuser\nIt is empty.\nassistant\n");
        let given = [later, sample(&uid(0, 0), "open box", 1.0), sample(&uid(1, 0), "give up", 0.0)];
        let read = dump(&given).unwrap();
        let [group] = read.batches[0].batch.groups.as_slice() else { panic!("{read:?}") };
        let turns: Vec<(&str, &str, f64)> = group.trajectories[0]
            .turns
            .iter()
            .map(|turn| (turn.observation.as_str(), turn.action.as_str(), turn.reward))
            .collect();
        assert_eq!(turns, [("Find it.", "open box", 0.0), ("It is empty.", "open bag", 1.0)]);
        let lines: Vec<usize> = read.batches[0].origins[0].iter().map(|origin| origin.line).collect();
        assert_eq!((group.trajectories[1].turns.len(), lines), (1, vec![2, 3]));

        let error = dump(&[given[1].clone(), given[1].clone()]).unwrap_err().to_string();
        assert!(error.contains("7.jsonl: line 2: its `uid` is that of line 1 too"), "{error}");
    }

    #[test]
    fn turns_of_llama_are_told_apart() {
        let prompt = "system\n\nYou are in a house.user\n\nFind it.assistant\n\n";
        let output = "go northuser\n\nA wall.assistant\n\ngo south";
        let uid = |output: u64| format!("{}_0_{output}", PROMPTS[0]);
        let mut first = sample(&uid(0), output, 1.0);
        first["input"] = json!(prompt);
        let mut later = sample(&uid(1), "open box", 1.0);
        later["input"] = json!(format!("{prompt}{output}user\n\nA box.assistant\n\n"));
        let read = dump(&[first, later]).unwrap();
        let trajectory = &read.batches[0].batch.groups[0].trajectories[0];
        let turns: Vec<(&str, &str, f64)> = trajectory
            .turns
            .iter()
            .map(|turn| (turn.observation.as_str(), turn.action.as_str(), turn.reward))
            .collect();
        assert_eq!(
            turns,
            [(prompt, "go north", 0.0), ("A wall.", "go south", 0.0), ("A box.", "open box", 1.0)]
        );
        assert_eq!(trajectory.task.goal, "Find it.");
    }

    #[test]
    fn numbers_of_python_count_where_they_are_read() {
        // An unused key, as `json.dumps` writes it.
        let text = sample("u1", "the output says NaN", 1.0).to_string();
        let with = |more: &str| format!("{}, {more}}}", &text[..text.len() - 1]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.jsonl");
        std::fs::write(&path, with(r#""length_penalty": NaN, "parts": {"score": [-Infinity]}"#)).unwrap();
        let dump = read(&path, &ReadOptions::default()).unwrap();
        assert_eq!(dump.batches[0].batch.groups[0].trajectories[0].turns[0].response, "the output says NaN");
        std::fs::write(&path, with(r#""acc": -Infinity"#)).unwrap();
        let error = read(&path, &ReadOptions::default()).unwrap_err().to_string();
        assert!(
            error.contains("7.jsonl: line 1: `acc` is -Infinity, and JSON has no such number"),
            "{error}"
        );
    }

    #[test]
    fn other_uids_name_groups_as_they_are() {
        for uid in ["task_1_0", "u1", PROMPTS[0], "pad_0_0", "0b9a4c1e53d24f0a9c572f6f1f0f7a11_0_0"] {
            assert_eq!(Key::of(uid), None, "{uid}");
            let read = dump(&[sample(uid, "a", 1.0), sample(uid, "b", 0.0)]).unwrap();
            assert_eq!(read.batches[0].batch.groups[0].trajectories.len(), 2, "{uid}");
            assert_eq!(read.batches[0].origins[0][0].group, json!(uid));
        }
    }
}
