//! Tests of `turnwise analyze surprisal` and `attribution` on a run's checkpoint.

use serde_json::Value;

use crate::turnwise;

const TINY: &[&str] = &[
    concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml"),
    "preset=grpo",
    "name=tiny",
    "env.generator.size=tiny",
    "sft.steps=2",
    "train.steps=1",
    "eval.splits=[\"valid_unseen\"]",
];

#[test]
fn a_checkpoint_is_analysed() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let trained = turnwise(&[&["train", "--runs", runs], TINY].concat());
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let run = folder.path().join("tiny");
    let out = folder.path().join("numbers.json");
    let analyze = |what: &str, more: &[&str]| {
        let common = ["analyze", what, run.to_str().unwrap(), "--tasks", "3", "--samples", "4"];
        let output = turnwise(&[&common[..], &["-o", out.to_str().unwrap()], more].concat());
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let numbers: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
        (String::from_utf8(output.stdout).unwrap(), numbers)
    };

    // A policy that has learnt nothing is as uncertain everywhere.
    let surprisal = ["--states", "6", "--draws", "5", "--min-spread", "0"];
    let (text, study) = analyze("surprisal", &surprisal);
    assert!(text.contains("3 tasks of valid_unseen, 12 trajectories"), "{text}");
    let points = study["points"].as_array().unwrap();
    assert_eq!((points.len(), study["turns"].as_u64().unwrap() >= 12), (6, true), "{study}");
    for point in points {
        let number = |name: &str| point[name].as_f64().unwrap();
        assert!(
            number("alpha") != 1.0 && number("surprisal") > 0.0 && number("mean_surprisal") > 0.0,
            "{point}"
        );
        // Five other responses have not the surprisal of this one to the bit.
        assert_ne!(number("surprisal"), number("mean_surprisal"));
    }
    assert_eq!(analyze("surprisal", &surprisal).1, study, "the same command gives the same numbers");
    assert_ne!(analyze("surprisal", &[&surprisal[..], &["--seed", "9"]].concat()).1, study);

    let (text, study) = analyze("attribution", &[]);
    assert!(text.contains("goal+history"), "{text}");
    let turns = |side: &str| study[side]["turns"].as_u64().unwrap();
    assert!(turns("inliers") > 0 && study["left_out"] == 0, "{study}");
    assert_eq!(turns("outliers"), study["low"].as_u64().unwrap() + study["high"].as_u64().unwrap());
    let parts = study["inliers"]["parts"].as_array().unwrap();
    assert!(parts.len() == 3 && parts.iter().all(|part| part.as_f64().unwrap() != 0.0), "{study}");

    let refused =
        turnwise(&["analyze", "attribution", run.to_str().unwrap(), "--tasks", "3", "--preset", "grpo"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && message.contains("no turn is an outlier"), "{message}");
}
