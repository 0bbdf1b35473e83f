//! Dumps of the `verifiers` library, versions 0 and 1.
//!
//! `traces.jsonl` (v1) has one episode per line. Each trace of a trainable agent is a trajectory.
//! Each `sampled` node is a turn, which observes the messages on its path since the previous
//! `sampled` node. The last turn gets the sum of `score * weight`; traces without scores are
//! dropped. Traces with equal `group.id` (or task) and agent form a group, named `ID AGENT` if
//! there are several agents.
//!
//! `results.jsonl` (v0) has one rollout per line: `prompt`, `completion`, `reward`, and
//! `example_id` for the group.
//!
//! Both formats lack turn rewards, progress and values.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::dump::Record;
use crate::{DumpError, chat, lines};

#[derive(Deserialize)]
struct Episode {
    traces: Vec<Trace>,
    group: Option<EpisodeGroup>,
    task: Option<EpisodeTask>,
    run: Option<Value>,
}

#[derive(Deserialize)]
struct EpisodeGroup {
    id: Value,
}

#[derive(Deserialize)]
struct EpisodeTask {
    key: Option<String>,
    hash: Option<String>,
    data: Option<Value>,
}

#[derive(Deserialize)]
struct Trace {
    agent: Option<Agent>,
    #[serde(default)]
    nodes: Vec<Node>,
    #[serde(default)]
    rewards: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct Agent {
    #[serde(default)]
    name: String,
    #[serde(default = "yes")]
    trainable: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct Node {
    parent: Option<usize>,
    message: Value,
    #[serde(default)]
    sampled: bool,
    entropies: Option<Vec<f32>>,
}

#[derive(Deserialize)]
struct Rollout {
    example_id: Option<Value>,
    prompt: Option<Value>,
    completion: Option<Value>,
    reward: Option<f64>,
}

pub(crate) fn records(path: &Path, notes: &mut Vec<String>) -> Result<Vec<Record>, DumpError> {
    let mut records = Vec::new();
    let mut agents: Vec<Option<String>> = Vec::new();
    let mut unscored = 0;
    lines::each(path, |line, text| {
        let used = |keys: &[&str]| {
            matches!(
                keys,
                ["reward" | "example_id"]
                    | ["traces", "rewards", _, "score" | "weight"]
                    | ["traces", "nodes", "entropies"]
            )
        };
        let value: Value = lines::parse(path, line, text, used)?;
        let fail = |error: serde_json::Error| DumpError::line(path, line, lines::json_reason(&error));
        if value.get("traces").is_some() {
            let episode: Episode = serde_json::from_value(value).map_err(fail)?;
            for (agent, record) in traces(path, line, episode, &mut unscored)? {
                agents.push(Some(agent));
                records.push(record);
            }
        } else {
            agents.push(None);
            records.push(rollout(path, line, serde_json::from_value(value).map_err(fail)?)?);
        }
        Ok(true)
    })?;
    if unscored > 0 {
        notes.push(format!("{unscored} traces have no reward and were left out"));
    }
    name_agents(&mut records, &agents);
    chat::name_groups(&mut records);
    Ok(records)
}

/// Appends the agent's name to group names if there are several agents.
fn name_agents(records: &mut [Record], agents: &[Option<String>]) {
    if agents.iter().flatten().collect::<BTreeSet<_>>().len() < 2 {
        return;
    }
    for (record, agent) in records.iter_mut().zip(agents) {
        if let Some(agent) = agent.as_ref().filter(|agent| !agent.is_empty() && !record.group.is_null()) {
            let id = record.group.as_str().map_or_else(|| record.group.to_string(), str::to_owned);
            record.group = Value::from(format!("{id} {agent}"));
        }
    }
}

/// Returns an episode's trajectories, each with its agent. Traces without reward are counted in
/// `unscored`.
fn traces(
    path: &Path,
    line: usize,
    episode: Episode,
    unscored: &mut usize,
) -> Result<Vec<(String, Record)>, DumpError> {
    let mut records = Vec::new();
    let task = episode.task.as_ref();
    let (name, key) = match (episode.group, task) {
        (Some(group), _) => (group.id.clone(), group.id.to_string()),
        (None, Some(EpisodeTask { key: Some(key), .. } | EpisodeTask { hash: Some(key), .. })) => {
            (Value::from(key.as_str()), key.clone())
        }
        (None, Some(EpisodeTask { data: Some(data), .. })) => (Value::Null, data.to_string()),
        (None, _) => {
            let reason = "neither `group` nor `task` says which episodes are compared with each other";
            return Err(DumpError::line(path, line, reason));
        }
    };
    let step = episode.run.as_ref().and_then(|run| run["work"]["step"].as_u64()).unwrap_or(0);
    for trace in episode.traces {
        let agent = trace.agent.unwrap_or(Agent { name: String::new(), trainable: true });
        if !agent.trainable {
            continue;
        }
        let scored: Vec<f64> = trace
            .rewards
            .values()
            .filter_map(|reward| Some(reward["score"].as_f64()? * reward["weight"].as_f64().unwrap_or(1.0)))
            .collect();
        if scored.is_empty() {
            *unscored += 1;
            continue;
        }
        let reward = scored.iter().sum();
        let key = format!("{key:?} {}", agent.name);
        let messages = walk(&trace.nodes).map_err(|reason| DumpError::line(path, line, reason))?;
        let goal = messages.iter().take_while(|message| !message.sampled).last();
        let goal = goal.map(|message| message.text.clone()).unwrap_or_default();
        let record = chat::record(line, step, key, name.clone(), goal, messages, reward, None);
        records.push((agent.name, record));
    }
    Ok(records)
}

fn walk(nodes: &[Node]) -> Result<Vec<chat::Message>, String> {
    let mut messages = Vec::new();
    for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.sampled) {
        let mut before = Vec::new();
        let mut at = node.parent;
        while let Some(parent) = at {
            // A parent comes first, which rules out cycles.
            let Some(node) = nodes[..index].get(parent).filter(|node| !node.sampled) else {
                if parent >= index {
                    return Err(format!(
                        "node {index} of a trace has the parent {parent}, which comes later"
                    ));
                }
                break;
            };
            before.push(chat::message(&node.message).ok_or("a node's message has no readable content")?);
            at = node.parent.filter(|&next| next < parent);
        }
        messages.extend(before.into_iter().rev().map(|message| chat::Message { sampled: false, ..message }));
        let message = chat::message(&node.message).ok_or("a node's message has no readable content")?;
        let entropies = node.entropies.clone().unwrap_or_default();
        messages.push(chat::Message { sampled: true, entropies, ..message });
    }
    Ok(messages)
}

fn rollout(path: &Path, line: usize, read: Rollout) -> Result<Record, DumpError> {
    let fail = |reason: &str| DumpError::line(path, line, reason);
    let reward = read.reward.ok_or_else(|| fail("`reward` is missing; every method needs the outcome"))?;
    let name = read.example_id.ok_or_else(|| fail("`example_id` is missing; it says what the group is"))?;
    let prompt = read.prompt.as_ref().and_then(chat::messages).unwrap_or_default();
    let completion = read
        .completion
        .as_ref()
        .and_then(chat::messages)
        .ok_or_else(|| fail("`completion` is neither a text nor a list of messages"))?;
    let goal = prompt.last().map(|message| message.text.clone()).unwrap_or_default();
    let mut messages: Vec<chat::Message> =
        prompt.into_iter().map(|message| chat::Message { sampled: false, ..message }).collect();
    messages.extend(completion);
    Ok(chat::record(line, 0, name.to_string(), name, goal, messages, reward, None))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Dump, ReadOptions, read};

    fn episode(agents: &[(&str, bool, Option<f64>)]) -> Value {
        let traces: Vec<Value> = agents
            .iter()
            .map(|(name, trainable, score)| {
                json!({"agent": {"name": name, "trainable": trainable},
                    "nodes": [{"parent": null, "sampled": true, "message": {"role": "assistant", "content": "a"}}],
                    "rewards": {"right": score.map(|score| json!({"score": score}))}})
            })
            .collect();
        json!({"group": {"id": "g1"}, "task": {"data": {}}, "traces": traces})
    }

    fn dump(episodes: &[Value]) -> Dump {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.jsonl");
        let text: Vec<String> = episodes.iter().map(Value::to_string).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        read(&path, &ReadOptions::default()).unwrap()
    }

    fn groups(dump: &Dump) -> Vec<(Value, usize)> {
        let origins = dump.batches.iter().flat_map(|step| &step.origins);
        let named = origins.map(|group| {
            assert!(group.iter().all(|origin| origin.group == group[0].group), "{group:?}");
            (group[0].group.clone(), group.len())
        });
        named.collect()
    }

    #[test]
    fn agents_of_an_episode_are_groups_with_names_of_their_own() {
        let both =
            |score: f64| episode(&[("solver", true, Some(score)), ("critic", true, Some(1.0 - score))]);
        // A lone agent still belongs to its group.
        let read = dump(&[both(1.0), both(0.0), episode(&[("solver", true, Some(0.5))])]);
        assert_eq!(groups(&read), [(json!("g1 solver"), 3), (json!("g1 critic"), 2)]);
        let scored = |score: f64| episode(&[("solver", true, Some(score)), ("critic", true, None)]);
        assert_eq!(groups(&dump(&[scored(1.0), scored(0.0)])), [(json!("g1"), 2)]);
    }

    #[test]
    fn a_reward_that_is_no_number_is_named() {
        let text = episode(&[("solver", true, Some(0.25))]).to_string();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.jsonl");
        std::fs::write(&path, text.replace("0.25", "NaN")).unwrap();
        let error = read(&path, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("`traces.rewards.right.score` is NaN"), "{error}");
        std::fs::write(&path, text.replacen('{', r#"{"metrics": {"score": NaN},"#, 1)).unwrap();
        assert_eq!(groups(&read(&path, &ReadOptions::default()).unwrap()), [(json!("g1"), 1)]);
    }

    #[test]
    fn a_judge_that_is_missing_leaves_the_group_as_it_is() {
        let judged = episode(&[("solver", true, Some(1.0)), ("judge", false, None)]);
        let alone = episode(&[("solver", true, Some(0.0))]);
        assert_eq!(groups(&dump(&[judged, alone])), [(json!("g1"), 2)]);
    }
}
