//! Tests that exports can be read with the same turns and rewards.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::json;
use turnwise_core::{Part, Task, Tool, ToolCall, Trajectory, Turn};
use turnwise_trajectory_io::{ExportFormat, Exported, Format, ReadOptions, export, read};

/// A trajectory of an environment with tools, as a run writes it.
fn trajectory(sample: usize, rewards: [f64; 2]) -> Trajectory {
    let call = |id: &str, city: &str| ToolCall {
        id: id.into(),
        name: "weather".into(),
        arguments: json!({"city": city}),
    };
    let first = Turn {
        observation: "Be brief.\nUmbrella in Oslo?".into(),
        parts: ["system", "user"]
            .iter()
            .zip(["Be brief.", "Umbrella in Oslo?"])
            .map(|(role, text)| Part::Message { role: (*role).into(), text: text.into() })
            .collect(),
        response: "<think>\nWhere?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\"}\n</tool_call>"
            .into(),
        action: "weather({\"city\":\"Oslo\"})\nweather({\"city\":\"Bergen\"})".into(),
        calls: vec![call("a", "Oslo"), call("b", "Bergen")],
        valid: true,
        reward: rewards[0],
        response_ids: vec![7, 8],
        old_logprobs: vec![-0.5, -0.25],
        ..Turn::default()
    };
    let second = Turn {
        observation: "rain\nsun".into(),
        parts: [("b", "sun"), ("a", "rain")]
            .map(|(id, text)| Part::ToolResult { call_id: id.into(), text: text.into() })
            .to_vec(),
        response: "Yes, it rains in Oslo.".into(),
        action: "Yes, it rains in Oslo.".into(),
        valid: true,
        reward: rewards[1],
        ..Turn::default()
    };
    let task = Task::new("t1", "weather", "Umbrella in Oslo?");
    let tools = vec![Tool::from_json(r#"{"name": "weather", "parameters": {"type": "object"}}"#).unwrap()];
    Trajectory {
        sample,
        group: 3,
        step: 5,
        tools,
        success: rewards[1] > 0.0,
        advantages: Some(vec![0.5, -0.5]),
        ..Trajectory::new(task, vec![first, second])
    }
}

fn exported() -> Vec<Exported> {
    [trajectory(0, [0.0, 1.0]), trajectory(1, [0.25, 0.0])].iter().map(Exported::from).collect()
}

/// Returns the compared fields of a turn: observation, response, calls, and reward.
fn turns(of: &Trajectory) -> Vec<(String, String, Vec<ToolCall>, f64)> {
    of.turns
        .iter()
        .map(|turn| (turn.observation.clone(), turn.action.clone(), turn.calls.clone(), turn.reward))
        .collect()
}

fn again(path: &Path, format: Format) -> Vec<Trajectory> {
    let dump = read(path, &ReadOptions::default()).unwrap();
    assert_eq!(dump.format, format, "{}", path.display());
    assert_eq!(dump.batches.len(), 1);
    assert_eq!(dump.batches[0].step, 5);
    dump.batches[0].batch.groups.iter().flat_map(|group| group.trajectories.clone()).collect()
}

#[test]
fn messages_and_atif_keep_turns_calls_results_and_rewards() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = exported().len();
    for (name, export_format, format) in [
        ("a.jsonl", ExportFormat::Messages, Format::Messages),
        ("b.jsonl.zst", ExportFormat::Messages, Format::Messages),
        ("c.parquet", ExportFormat::Messages, Format::Messages),
        ("d.jsonl", ExportFormat::Atif, Format::Atif),
    ] {
        let path = folder.path().join(name);
        export::write(&path, export_format, &exported()).unwrap();
        let read = again(&path, format);
        assert_eq!(read.len(), expected, "{name}");
        expected = read.len();
        for (sample, one) in read.iter().enumerate() {
            let original = trajectory(sample, [[0.0, 1.0], [0.25, 0.0]][sample]);
            let mut original_turns = turns(&original);
            // Results keep the order in which they arrived.
            original_turns[1].0 = "sun\nrain".into();
            assert_eq!(turns(one), original_turns, "{name}");
            assert_eq!(one.turns[1].parts, original.turns[1].parts, "{name}");
            assert!(one.turns[0].response.starts_with("<think>\nWhere?\n</think>\n\nI look.\n"), "{name}");
            assert_eq!(
                (one.tools.clone(), one.sample, one.task.goal.as_str()),
                (original.tools, sample, "Umbrella in Oslo?")
            );
        }
    }
    let atif = again(&folder.path().join("d.jsonl"), Format::Atif);
    assert_eq!(
        (atif[0].turns[0].response_ids.as_slice(), atif[0].turns[0].old_logprobs[1]),
        (&[7, 8][..], -0.25)
    );
}

#[test]
fn verl_and_trl_keep_turns_and_the_sum_of_rewards() {
    let folder = tempfile::tempdir().unwrap();
    for (name, export_format, format) in
        [("a.jsonl", ExportFormat::Verl, Format::Verl), ("b.parquet", ExportFormat::Trl, Format::Trl)]
    {
        let path = folder.path().join(name);
        export::write(&path, export_format, &exported()).unwrap();
        let read = again(&path, format);
        let rewards: Vec<Vec<f64>> =
            read.iter().map(|one| one.turns.iter().map(|turn| turn.reward).collect()).collect();
        assert_eq!(rewards, [[0.0, 1.0], [0.0, 0.25]], "{name}");
        assert!(read.iter().all(|one| one.turns[1].action == "Yes, it rains in Oslo."), "{name}");
        assert!(read.iter().all(|one| one.turns[0].action.contains("Bergen")), "{name}");
    }
}

#[test]
fn a_folder_has_a_file_for_each_atif_trajectory() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("atif");
    export::write(&out, ExportFormat::Atif, &exported()).unwrap();
    let read = again(&out.join("step-000005-group-3-sample-1.json"), Format::Atif);
    assert_eq!(read[0].turns[0].reward, 0.25);
    for (name, format) in [
        ("a.json", ExportFormat::Messages),
        ("a.parquet", ExportFormat::Atif),
        ("a.jsonl", ExportFormat::Trl),
    ] {
        let error = export::check_name(&folder.path().join(name), format).unwrap_err().to_string();
        assert!(error.contains("the name must end in"), "{error}");
    }
}
