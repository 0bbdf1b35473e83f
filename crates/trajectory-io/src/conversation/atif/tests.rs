use serde_json::json;
use turnwise_core::Part;

use super::*;
use crate::{Dump, Format, ReadOptions, read};

fn trajectory() -> Value {
    json!({
        "schema_version": "ATIF-v1.8", "session_id": "s1",
        "agent": {"name": "terminus-2", "version": "2.0", "model_name": "m",
            "tool_definitions": [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]},
        "steps": [
            {"step_id": 1, "source": "system", "message": "You have a shell."},
            {"step_id": 2, "source": "user", "message": "List the files."},
            {"step_id": 3, "source": "agent", "message": "I look.", "reasoning_content": "ls",
                "tool_calls": [{"tool_call_id": "t1", "function_name": "run", "arguments": {"command": "ls"}}],
                "observation": {"results": [{"source_call_id": "t1", "content": "a.txt"}]},
                "metrics": {"completion_token_ids": [5, 6], "logprobs": [-0.5, -0.25]}},
            {"step_id": 4, "source": "agent", "message": "dispatched", "llm_call_count": 0},
            {"step_id": 5, "source": "agent", "message": [{"type": "text", "text": "There is a.txt."}]}],
        "subagent_trajectories": [{"trajectory_id": "x"}]
    })
}

fn dump(value: &Value) -> Result<Dump, DumpError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trajectory.json");
    std::fs::write(&path, serde_json::to_string_pretty(value).unwrap()).unwrap();
    read(&path, &ReadOptions::default())
}

#[test]
fn an_agent_step_is_a_turn_and_its_observation_is_the_next_ones() {
    let dump = dump(&trajectory()).unwrap();
    let notes = ["trajectories of sub-agents are left out", "1 of 1 trajectories have no reward"];
    assert_eq!((dump.format, dump.notes.as_slice()), (Format::Atif, &notes.map(String::from)[..]));
    let trajectory = &dump.batches[0].batch.groups[0].trajectories[0];
    let [first, second] = trajectory.turns.as_slice() else { panic!("{trajectory:?}") };
    assert_eq!(first.observation, "You have a shell.\nList the files.");
    assert_eq!(first.action, "run({\"command\":\"ls\"})");
    assert_eq!(first.response, "<think>\nls\n</think>\n\nI look.\nrun({\"command\":\"ls\"})");
    assert_eq!(
        (first.response_ids.as_slice(), first.old_logprobs.as_slice()),
        (&[5, 6][..], &[-0.5, -0.25][..])
    );
    // A step by a program is not a turn.
    let dispatched = Part::Message { role: "assistant".into(), text: "dispatched".into() };
    assert_eq!(second.parts, [Part::ToolResult { call_id: "t1".into(), text: "a.txt".into() }, dispatched]);
    assert_eq!((second.action.as_str(), trajectory.tools[0].name()), ("There is a.txt.", "run"));
    assert!(dump.require_rewards().is_err());
}

#[test]
fn rewards_and_groups_are_those_of_the_trials() {
    let job = tempfile::tempdir().unwrap();
    for (trial, rewards) in [("a", json!({"reward": 1.0, "speed": 3})), ("b", json!({"reward": 0}))] {
        let folder = job.path().join(trial);
        std::fs::create_dir_all(folder.join("agent")).unwrap();
        std::fs::write(folder.join("agent/trajectory.json"), trajectory().to_string()).unwrap();
        let result =
            json!({"task_name": "list", "trial_name": trial, "verifier_result": {"rewards": rewards}});
        std::fs::write(folder.join("result.json"), result.to_string()).unwrap();
    }
    let read_at = |path: &Path| read(path, &ReadOptions::default()).unwrap();
    let dump = read_at(job.path());
    let group = &dump.batches[0].batch.groups[0];
    let returns: Vec<f64> =
        group.trajectories.iter().map(turnwise_core::Trajectory::outcome_return).collect();
    assert_eq!((returns, &dump.batches[0].origins[0][0].group), (vec![1.0, 0.0], &json!("list")));
    dump.require_rewards().unwrap();
    for path in ["b", "b/agent/trajectory.json"] {
        let dump = read_at(&job.path().join(path));
        assert_eq!(dump.batches[0].batch.groups[0].trajectories[0].turns[1].reward, 0.0, "{path}");
        dump.require_rewards().unwrap();
    }
}

#[test]
fn what_is_wrong_is_named_with_its_key() {
    for (change, reason) in [
        (
            (|value| value["schema_version"] = json!("ATIF-v2.0")) as fn(&mut Value),
            "reads ATIF-v1.0 to ATIF-v1.8",
        ),
        (|value| value["steps"][0]["source"] = json!("robot"), "`steps[0].source` is \"robot\""),
        (
            |value| value["steps"][2]["tool_calls"][0]["function_name"] = Value::Null,
            "`steps[2].tool_calls[0].function_name` is missing",
        ),
        (
            |value| value["steps"][2]["metrics"]["logprobs"] = json!("x"),
            "`steps[2].metrics.logprobs` is \"x\"",
        ),
        (|value| value["steps"] = json!({}), "`steps` is {}; it must be a list"),
    ] {
        let mut value = trajectory();
        change(&mut value);
        let error = dump(&value).unwrap_err().to_string();
        assert!(error.contains("trajectory.json: line 1: ") && error.contains(reason), "{error}");
    }
}
