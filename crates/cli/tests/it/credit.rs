//! Tests of `turnwise credit` on a file of every supported format.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use tempfile::TempDir;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/credit/two-trajectories.jsonl");

/// GiGPO by verl-agent's switches on the example, standardised, as an independent computation has it.
const GOLDEN: [&[f64]; 2] = [&[1.437388, 0.730282, 0.730282], &[-1.793446, -1.104505]];

fn credit(file: impl AsRef<Path>, arguments: &[&str]) -> Output {
    let file = file.as_ref().to_str().unwrap();
    Command::new(env!("CARGO_BIN_EXE_turnwise")).args(["credit", file]).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(file: impl AsRef<Path>, arguments: &[&str]) -> String {
    let output = credit(file, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?} was not refused");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: ") && !text.contains("panicked"), "{text}");
    text
}

/// A file of these lines in a folder of its own.
fn lines(name: &str, lines: &[Value]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    std::fs::write(&path, text.join("\n")).unwrap();
    (folder, path)
}

/// The rows that a run of the command wrote.
fn rows(file: &Path, arguments: &[&str]) -> Vec<Value> {
    let out = file.with_file_name("out.jsonl");
    stdout(&credit(file, &[arguments, &["-o", out.to_str().unwrap()]].concat()));
    let text = std::fs::read_to_string(out).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn advantages(row: &Value) -> Vec<f64> {
    row["advantages"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn close(rows: &[Value], expected: &[&[f64]]) -> bool {
    rows.len() == expected.len()
        && rows.iter().zip(expected).all(|(row, expected)| {
            let got = advantages(row);
            got.len() == expected.len() && got.iter().zip(*expected).all(|(a, b)| (a - b).abs() < 1e-5)
        })
}

fn example() -> Vec<Value> {
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_hand_written_file_gives_the_golden_numbers() {
    let mut given = example();
    let (_folder, file) = lines("hand.jsonl", &given);
    let got = rows(&file, &["--preset", "gigpo", "--verl-agent"]);
    assert!(close(&got, &GOLDEN), "{got:?}");
    let mean = ["--preset", "gigpo", "--verl-agent", "--set", "estimator.normalize=mean"];
    assert!(close(&rows(&file, &mean), &[&[8.532499, 4.02, 4.02], &[-10.4925, -6.08]]));
    let grpo = rows(&file, &["--preset", "grpo", "--verl-agent"]);
    assert!(close(&grpo, &[&[0.730282; 3], &[-1.086339, -1.104505]]), "{grpo:?}");
    assert!(close(&rows(&file, &["--preset", "rloo", "--verl-agent"]), &[&[5.025; 3], &[-7.475, -7.6]]));
    assert_eq!(
        (&got[1]["group"], &got[1]["line"], &got[1]["success"]),
        (&json!("a"), &json!(2), &json!(false))
    );
    // An invalid turn that is called valid must be noticed.
    given[1]["turns"][1]["valid"] = json!(true);
    let (_folder, file) = lines("hand.jsonl", &given);
    assert!(!close(&rows(&file, &["--preset", "gigpo", "--verl-agent"]), &GOLDEN));
}

#[test]
fn the_terminal_shows_a_table_that_fits() {
    let text = stdout(&credit(EXAMPLE, &["--preset", "aem-gigpo", "--explain"]));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for expected in [
        "group a  put a clean mug in the cabinet  2 trajectories, mean return 5, 1 of 2 solved",
        "trajectory 1  return 0  not solved  (line 2)",
        "anchor 0, anchor_size 2",
        "entropy 0.9, alpha 0.9007",
        "-0.5631  invalid",
        "\ngigpo: A = episode + omega x step: ",
        "\n    anchor_size         turns of the group in that state",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
    assert_eq!(text.matches("    anchor_size   ").count(), 1, "the legend has each fact once");
    let many: Vec<Value> = (0..9)
        .map(|group| json!({"group": group, "turns": [{"reward": 1.0, "action": "a ".repeat(90)}]}))
        .collect();
    let (_folder, file) = lines("many.jsonl", &many);
    let text = stdout(&credit(&file, &["--preset", "grpo", "--groups", "2"]));
    assert!(text.contains("2 of 9 groups shown") && text.contains("a…"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn every_number_has_its_explanation() {
    let (_folder, file) = lines("hand.jsonl", &example());
    let explanation = |preset: &str, arguments: &[&str]| {
        let got = rows(&file, &[&["--preset", preset, "--explain"], arguments].concat());
        for row in &got {
            for (turn, stages) in row["explanation"].as_array().unwrap().iter().enumerate() {
                assert_eq!(stages.as_array().unwrap().last().unwrap()["advantage"], row["advantages"][turn]);
            }
        }
        got[1]["explanation"][0].clone()
    };
    let stapo = explanation("stapo", &[]);
    for fact in ["outlier", "entropy", "entropy_normalised", "low", "high", "anchor", "anchor_size"] {
        assert!(stapo[1]["facts"][fact].is_number(), "{fact}: {stapo}");
    }
    assert_eq!(stapo[0]["facts"]["anchor_size"], 2.0);
    let hgpo = explanation("hgpo", &[]);
    assert_eq!(
        (&hgpo[0]["facts"]["anchor_size"], &hgpo[0]["facts"]["level_1_size"]),
        (&json!(2.0), &json!(2.0))
    );
    assert!(hgpo[0]["facts"]["level_1"].as_f64().unwrap() < -0.9);
    assert!(explanation("aem-grpo", &[])[1]["facts"]["alpha"].is_number());
    let salt = explanation("salt-grpo", &[]);
    assert_eq!((&salt[1]["facts"]["edge_size"], &salt[1]["stage"]), (&json!(1.0), &json!("salt")));
    // Without the flag there are no explanations.
    assert!(rows(&file, &["--preset", "stapo"])[0].get("explanation").is_none());
    assert_eq!(rows(&file, &["--preset", "stapo"])[0]["outliers"], json!([true, false, false]));
}

#[test]
fn salt_matches_observations_by_their_spelling() {
    let line = |count: u32, reward: f64| {
        let text = format!("Results 1 to 10 of {count} for red running shoes: price 40, 42, 55");
        json!({"group": 1, "turns": [
            {"observation": text, "action": "buy", "reward": reward},
            {"observation": "Thank you for your order", "action": "end", "reward": 0},
        ]})
    };
    let (_folder, file) = lines("shop.jsonl", &[line(48, 1.0), line(50, 0.0)]);
    let exact = rows(&file, &["--preset", "salt-grpo"]);
    let alike = rows(&file, &["--preset", "salt-grpo", "--set", "salt.matching=embedding"]);
    assert!(advantages(&exact[0])[0] > 0.5);
    assert_eq!(advantages(&alike[0])[0], 0.0);
}

#[test]
fn a_runs_dump_is_read_as_it_is_written() {
    use turnwise_core::{StopReason, Task, Trajectory, Turn};
    let trajectory = |sample: usize, entropies: &[f32], reward: f64| {
        let turn = Turn {
            observation: "o".into(),
            response: "look".into(),
            action: "look".into(),
            valid: true,
            reward,
            entropies: entropies.to_vec(),
            response_ids: vec![7; entropies.len()],
            ..Turn::default()
        };
        Trajectory {
            group: 3,
            sample,
            step: 12,
            stop: StopReason::MaxTurns,
            success: reward > 0.0,
            advantages: Some(vec![0.25]),
            ..Trajectory::new(Task::new("t", "k", "find it"), vec![turn])
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("step-000012.jsonl.zst");
    let written = [trajectory(0, &[0.1, 0.3], 1.0), trajectory(1, &[1.0, 2.0], 0.0)];
    turnwise_train::record::directory::write_trajectories(&file, written.iter()).unwrap();
    let got = rows(&file, &["--preset", "aem-grpo"]);
    assert_eq!((&got[0]["group"], &got[1]["sample"], &got[0]["step"]), (&json!(3), &json!(1), &json!(12)));
    assert_eq!((&got[0]["task"], &got[1]["success"]), (&json!("find it"), &json!(false)));
    assert!(advantages(&got[0])[0] > -advantages(&got[1])[0], "{got:?}");

    // Of a run directory, the newest step is read.
    let run = folder.path().join("run");
    std::fs::create_dir_all(run.join("trajectories")).unwrap();
    std::fs::write(run.join("config.toml"), "").unwrap();
    let error = refused(&run, &["--preset", "aem-grpo"]);
    assert!(error.contains("run: ") && error.contains("train.save_trajectories"), "{error}");
    for (name, sample) in [("step-000009", 0), ("step-000012", 1), ("sft-000020", 0)] {
        let file = run.join("trajectories").join(format!("{name}.jsonl.zst"));
        let both = [&written[sample], &written[1 - sample]];
        turnwise_train::record::directory::write_trajectories(&file, both.into_iter()).unwrap();
    }
    let newest = rows(&run, &["--preset", "aem-grpo"]);
    assert_eq!((&newest[0]["sample"], advantages(&newest[0])), (&json!(1), advantages(&got[1])));
}

#[test]
fn verl_dumps() {
    let sample = |input: &str, output: &str, score: f64| json!({"input": input, "output": output, "gts": "42", "score": score, "step": 7, "acc": score > 0.0});
    let prompt = "system\nYou play.\nuser\nFind the key.\nassistant\n";
    let (_folder, file) = lines(
        "7.jsonl",
        &[
            sample(prompt, "<think>hm</think>\nopen box\nuser\nIt is empty.\nassistant\nopen bag", 1.0),
            sample(prompt, "give up", 0.0),
            sample("another", "x", 0.0),
        ],
    );
    let got = rows(&file, &["--preset", "gigpo"]);
    assert_eq!(got.iter().map(|row| advantages(row).len()).collect::<Vec<_>>(), [2, 1, 1]);
    assert_eq!((&got[0]["group"], &got[2]["group"], &got[0]["step"]), (&json!(0), &json!(1), &json!(7)));
    assert_eq!((&got[0]["task"], &got[0]["success"]), (&json!("Find the key."), &json!(true)));
    // Both begin in the same state, so that turn has a step advantage; the second turn has none.
    let root = std::f64::consts::FRAC_1_SQRT_2;
    assert!(close(&got[..1], &[&[2.0 * root, root]]), "{got:?}");
    assert!(stdout(&credit(&file, &["--preset", "grpo"])).contains("open box"));

    let error = refused(&file, &["--preset", "aem-grpo"]);
    assert!(error.contains("7.jsonl: line 1: turn 0: aem needs `entropy`"), "{error}");
    assert!(error.contains("verl dumps do not have it"), "{error}");
    let (_folder, file) = lines("8.jsonl", &[json!({"input": "a", "output": "b", "step": 1})]);
    assert!(refused(&file, &["--preset", "grpo"]).contains("8.jsonl: line 1: `score` is missing"));
}

/// A file as pandas writes it for TRL: texts, two reward functions, one of them silent once.
fn trl_file(folder: &Path, compression: Compression) -> PathBuf {
    let schema = "message schema {
        optional int64 step;
        optional binary prompt (utf8);
        optional binary completion (utf8);
        optional double accuracy_reward;
        optional double format_reward;
        optional double advantage;
    }";
    let path = folder.join("completions_00003.parquet");
    let properties = WriterProperties::builder().set_compression(compression).build();
    let file = std::fs::File::create(&path).unwrap();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let text = |texts: [&str; 4]| texts.map(ByteArray::from);
    let all = [1_i16; 4];
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[3; 4], Some(&all), None).unwrap();
    column.close().unwrap();
    for texts in [text(["p", "p", "q", "q"]), text(["a", "b", "c", "d"])] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&all), None).unwrap();
        column.close().unwrap();
    }
    for (values, defined) in
        [(&[1.0, 0.0, 1.0][..], [1, 1, 1, 0]), (&[0.5, 0.5, 0.0, 1.0][..], all), (&[9.0; 4][..], all)]
    {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(values, Some(&defined), None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    path
}

#[test]
fn trl_completions() {
    for compression in [Compression::SNAPPY, Compression::ZSTD(parquet::basic::ZstdLevel::default())] {
        let folder = tempfile::tempdir().unwrap();
        let file = trl_file(folder.path(), compression);
        let got = rows(&file, &["--preset", "rloo"]);
        assert!(close(&got, &[&[1.0], &[-1.0], &[0.0], &[0.0]]), "{got:?}");
        let weighted = rows(&file, &["--preset", "rloo", "--reward", "accuracy_reward=2"]);
        assert!(close(&weighted, &[&[2.0], &[-2.0], &[2.0], &[-2.0]]), "{weighted:?}");
        let shown = stdout(&credit(&file, &["--preset", "rloo"]));
        assert!(shown.contains("note: reward = accuracy_reward + format_reward"), "{shown}");
        let error = refused(&file, &["--preset", "grpo", "--reward", "style"]);
        assert!(error.contains("there are accuracy_reward, format_reward"), "{error}");
        let error = refused(&file, &["--preset", "empg"]);
        assert!(
            error.contains("line 1: turn 0: empg needs `entropy`") && error.contains("trl dumps"),
            "{error}"
        );
    }
}

#[test]
fn verifiers_dumps_of_both_generations() {
    let node = |parent: Option<usize>, role: &str, text: &str| json!({"parent": parent, "sampled": role == "assistant", "message": {"role": role, "content": text}});
    let episode = |score: f64, last: &str| {
        let nodes = [
            node(None, "system", "Play."),
            node(Some(0), "user", "Find it."),
            node(Some(1), "assistant", "look"),
            node(Some(2), "tool", "A box."),
            node(Some(3), "assistant", last),
        ];
        json!({"id": last, "group": {"id": "g1"}, "task": {"type": "T", "data": {}}, "ok": true, "traces": [
            {"agent": {"name": "solver", "trainable": true}, "nodes": nodes,
             "rewards": {"right": {"score": score, "weight": 2.0}, "style": null}},
        ]})
    };
    let (_folder, file) = lines("traces.jsonl", &[episode(1.0, "open box"), episode(0.0, "leave")]);
    let got = rows(&file, &["--preset", "gigpo", "--set", "estimator.normalize=mean"]);
    // Returns 2 and 0; both states are shared; the step return of the first turn is 0.95 * 2.
    assert!(close(&got, &[&[1.95, 2.0], &[-1.95, -2.0]]), "{got:?}");
    assert_eq!((&got[0]["group"], &got[0]["task"]), (&json!("g1"), &json!("Find it.")));
    let mut unscored = episode(0.0, "open");
    unscored["traces"][0]["rewards"] = json!({"right": null});
    let (_folder, file) = lines("traces.jsonl", &[episode(1.0, "x"), unscored]);
    assert!(stdout(&credit(&file, &["--preset", "grpo"])).contains("note: 1 traces have no reward"));

    let rollout = |reward: f64, call: &str| {
        json!({"example_id": 5, "reward": reward, "prompt": [{"role": "user", "content": "Find it."}],
            "completion": [
                {"role": "assistant", "content": "", "tool_calls": [{"name": "open", "arguments": call}]},
                {"role": "tool", "content": "Empty."},
                {"role": "assistant", "content": "<think>so</think> done"}]})
    };
    let (_folder, file) = lines("results.jsonl", &[rollout(1.0, "{}"), rollout(0.0, "{\"at\": 1}")]);
    let got = rows(&file, &["--preset", "rloo"]);
    assert!(close(&got, &[&[1.0, 1.0], &[-1.0, -1.0]]), "{got:?}");
    assert_eq!(got[0]["group"], 5);
    let shown = stdout(&credit(&file, &["--preset", "rloo"]));
    // A call is compared by its arguments and not by their blanks.
    assert!(shown.contains("open({\"at\":1})") && shown.contains(" done "), "{shown}");
}

#[test]
fn what_a_method_needs_from_outside_may_come_with_the_file() {
    let line = |credit: [f64; 2], values: Value, reward: f64| {
        json!({"group": 1, "turns": [
            {"reward": 0, "credit": credit[0], "values": values},
            {"reward": reward, "credit": credit[1], "values": 0.5},
        ]})
    };
    let given = [line([0.9, 0.1], json!([0.5, 0.25]), 1.0), line([0.2, 0.8], json!(0.5), 0.0)];
    let (_folder, file) = lines("hand.jsonl", &given);
    let has = rows(&file, &["--preset", "has-judge"]);
    // (standardised return + standardised credit) / 2; both are +-1 in a group of two.
    assert!(close(&has, &[&[1.0, 0.0], &[-1.0, 0.0]]), "{has:?}");
    let ppo = rows(&file, &["--preset", "ppo", "--set", "estimator.whiten=false"]);
    // The return is 1 or 0 everywhere; the first turn of the first has two tokens.
    assert!(close(&ppo, &[&[0.625, 0.5], &[-0.5, -0.5]]), "{ppo:?}");

    for (preset, field) in
        [("ppo", "values"), ("so-ppo", "values"), ("has-judge", "credit"), ("has-turnrd-film", "credit")]
    {
        let error = refused(EXAMPLE, &["--preset", preset]);
        assert!(error.contains(&format!("needs `{field}`")) && error.contains(preset), "{error}");
    }
    assert!(refused(EXAMPLE, &["--preset", "has-progressive"]).contains("has needs `progress`"));
}

#[test]
fn wrong_lines_are_named() {
    for (line, expected) in [
        (json!({"group": "a", "turns": [{"action": "x"}]}), "line 2: turn 0: `reward` is missing"),
        (json!({"turns": []}), "line 2: `group` is missing"),
        (
            json!({"group": "a", "turns": [{"reward": 1, "vaild": false}]}),
            "line 2: turn 0: unknown key `vaild`",
        ),
        (
            json!({"group": "a", "turns": [{"reward": "much"}]}),
            "line 2: turn 0: `reward` is \"much\"; it must be a number",
        ),
        (json!({"schema_version": 99, "group": 0, "turns": []}), "line 2: schema_version is 99"),
        (
            json!({"group": "a", "turns": [{"reward": 1, "values": [1, 2], "response_ids": [3]}]}),
            "line 2: turn 0: `values`",
        ),
    ] {
        let (_folder, file) = lines("bad.jsonl", &[example()[0].clone(), line]);
        let error = refused(&file, &["--preset", "grpo"]);
        assert!(error.contains("bad.jsonl") && error.contains(expected), "{error}");
    }
    let (_folder, file) = lines("odd.jsonl", &[json!({"question": "?"})]);
    assert!(refused(&file, &["--preset", "grpo"]).contains("its keys: question"));
    let (_folder, file) = lines("empty.jsonl", &[]);
    assert!(refused(&file, &["--preset", "grpo"]).contains("has no trajectories"));
    assert!(refused("no-such-file.jsonl", &["--preset", "grpo"]).contains("no-such-file.jsonl"));
    assert!(refused(EXAMPLE, &["--preset", "gipgo"]).contains("did you mean `gigpo`"));
    assert!(
        refused(EXAMPLE, &["--preset", "gigpo", "--set", "estimator.omgea=1"])
            .contains("Did you mean `omega`")
    );
    let infinite = refused(EXAMPLE, &["--preset", "gigpo", "--set", "estimator.omega=inf"]);
    assert!(
        infinite.contains("--set estimator.omega=inf") && infinite.contains("a finite number"),
        "{infinite}"
    );
    assert!(refused(EXAMPLE, &["--preset", "grpo", "-o", "out.csv"]).contains("must end in .jsonl"));
    // The rows would take the place of what they are computed from.
    let (folder, file) = lines("own.jsonl", &example());
    let output = folder.path().join("./own.jsonl");
    let error = refused(&file, &["--preset", "grpo", "-o", output.to_str().unwrap()]);
    assert!(error.contains("--output") && error.contains("name another file"), "{error}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("turns"));
    // A turn that does not say its state is no obstacle to a method that does not look at it.
    let (_folder, file) = lines("bare.jsonl", &[json!({"group": 1, "turns": [{"reward": 1}]})]);
    stdout(&credit(&file, &["--preset", "grpo"]));
    assert!(refused(&file, &["--preset", "gigpo"]).contains("gigpo needs `observation`"));
}

#[test]
fn parquet_output_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("advantages.parquet");
    let arguments = ["--preset", "stapo", "--verl-agent", "--explain", "-o", out.to_str().unwrap()];
    stdout(&credit(EXAMPLE, &arguments));
    let reader = SerializedFileReader::new(std::fs::File::open(&out).unwrap()).unwrap();
    let read: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
    assert_eq!(read.len(), 2);
    for expected in
        ["group: \"a\"", "return: 10.0", "success: true", "[true, false, false]", "\"\"stage\"\":"]
    {
        let expected = expected.replace("\"\"", "\"");
        assert!(read[0].contains(&expected), "{expected} is missing in {}", read[0]);
    }
    let columns = reader.get_row_group(0).unwrap();
    assert_eq!(columns.metadata().num_rows(), 2);
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let parquet::column::reader::ColumnReader::DoubleColumnReader(mut column) =
        columns.get_column_reader(7).unwrap()
    else {
        panic!("the advantages are no doubles");
    };
    let mut defined = Vec::new();
    column.read_records(9, Some(&mut defined), Some(&mut levels), &mut values).unwrap();
    assert_eq!(levels, [0, 1, 1, 0, 1]);
    assert!(values.iter().zip(GOLDEN.concat()).all(|(a, b)| (a - b).abs() < 1e-5), "{values:?}");
}

#[test]
fn a_byte_order_mark_before_the_lines_is_no_part_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marked.jsonl");
    let text = "\u{feff}".to_owned() + &std::fs::read_to_string(EXAMPLE).unwrap();
    let arguments = ["--preset", "gigpo"];
    let plain = folder.path().join("plain.jsonl");
    std::fs::copy(EXAMPLE, &plain).unwrap();
    let plain = rows(&plain, &arguments);
    for bytes in [text.as_bytes().to_vec(), zstd::encode_all(text.as_bytes(), 3).unwrap()] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(rows(&path, &arguments), plain);
    }
}

#[test]
fn a_decompression_bomb_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bomb = |name: &str, unit: &[u8]| {
        let path = folder.path().join(name);
        let mut encoder = zstd::Encoder::new(std::fs::File::create(&path).unwrap(), 1).unwrap();
        let piece = unit.repeat((1 << 20) / unit.len());
        for _ in 0..1024 {
            std::io::Write::write_all(&mut encoder, &piece).unwrap();
        }
        encoder.finish().unwrap();
        assert!(path.metadata().unwrap().len() < 1 << 20);
        path
    };
    let line = bomb("line.jsonl.zst", b"x");
    let lines = bomb("lines.jsonl.zst", b"\n");
    for path in [&line, &lines] {
        let error = refused(path, &["--preset", "gigpo"]);
        assert!(error.contains(path.to_str().unwrap()) && error.contains("decompression bomb"), "{error}");
        let output = folder.path().join("page.html");
        let view = Command::new(env!("CARGO_BIN_EXE_turnwise"))
            .args(["view", path.to_str().unwrap(), "--output", output.to_str().unwrap()])
            .output()
            .unwrap();
        let error = String::from_utf8(view.stderr).unwrap();
        assert!(!view.status.success() && error.starts_with("error: "), "{error}");
        assert!(error.contains(path.to_str().unwrap()) && error.contains("decompression bomb"), "{error}");
    }
}
