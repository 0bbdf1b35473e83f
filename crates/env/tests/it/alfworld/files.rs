//! ALFWorld files: folders, archives, and broken files.

use std::path::Path;

use proptest::prelude::*;
use turnwise_core::TaskSet as _;
use turnwise_env::alfworld::{AlfworldSet, Episode, Game, replay};

use super::kitchen::{self, CLEAN, LOOK, PROBLEM, SIMPLE, TWO};

const NAME: &str = "train/kitchen/1/game.tw-pddl";

fn error(text: &str) -> String {
    Game::parse(NAME, text).unwrap_err().to_string()
}

fn changed(from: &str, to: &str) -> String {
    let problem = PROBLEM.replace("GOAL", SIMPLE);
    let broken = problem.replacen(from, to, 1);
    assert_ne!(problem, broken, "{from}");
    error(&kitchen::wrap(&broken))
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn archive(root: &Path, name: &str, files: &[(&str, &[u8])]) {
    let encoder =
        zstd::stream::write::Encoder::new(std::fs::File::create(root.join(name)).unwrap(), 1).unwrap();
    let mut builder = tar::Builder::new(encoder.auto_finish());
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, *bytes).unwrap();
    }
    builder.finish().unwrap();
}

#[test]
fn every_error_names_the_file_and_what_is_wrong_with_it() {
    let with = |error: String, parts: &[&str]| {
        assert!(error.starts_with(NAME), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    };
    with(error(""), &["not an ALFWorld game", "expected JSON"]);
    with(error("PK\u{3}\u{4}"), &["not an ALFWorld game"]);
    with(error("{\"grammar\": \"\", \"solvable\": true}"), &["pddl_problem"]);
    with(error(&kitchen::file(SIMPLE).replace("\"solvable\":true", "\"soluble\":true")), &["solvable"]);
    with(
        error(&kitchen::file(SIMPLE).replace("\"solvable\":true", "\"solvable\":false")),
        &["choose another"],
    );
    with(
        error(&kitchen::file(SIMPLE).replace("Your task is to: ", "Do: ")),
        &["`grammar`", "Your task is to"],
    );
    with(changed("(:init", "(:start"), &["`(:init`", "line"]);
    with(changed("(:goal", "(:gaol"), &["`(:goal`"]);
    with(changed("(isCool Apple_bar_2)", "(isCool Apple_bar_2"), &["fact"]);
    with(changed("(isCool Apple_bar_2)", "()"), &["empty fact"]);
    with(changed("(isCool Apple_bar_2)", "stray"), &["`stray`", "outside"]);
    with(changed("(isCool Apple_bar_2)", "(isBlue Apple_bar_2)"), &["line 32", "isblue"]);
    with(changed("(isCool Apple_bar_2)", "(isCool Apple_bar_2 x)"), &["iscool", "2 arguments"]);
    with(changed("(isCool Apple_bar_2)", "(isCool Shelf_bar_a)"), &["an object and a receptacle"]);
    with(changed("(atLocation cook loc_bar_door)", ""), &["0 `atLocation`"]);
    with(changed("(openable Cabinet_bar_1)", "(openable Apple_bar_1)"), &["openable", "apple_bar_1"]);
    with(changed("Apple_bar_1 CounterTop_bar_1", "Apple_bar_1 Table_bar_1"), &["table_bar_1"]);
    with(
        changed("(receptacleAtLocation Fridge_bar_1 loc_bar_b)", ""),
        &["fridge_bar_1", "receptacleAtLocation"],
    );
    with(
        changed("Fridge_bar_1 loc_bar_b)", "Fridge_bar_1 b) (receptacleAtLocation Fridge_bar_1 c)"),
        &["more than one location"],
    );
    with(
        changed("Fridge_bar_1 FridgeType)", "Fridge_bar_1 A) (receptacleType Fridge_bar_1 B)"),
        &["more than one type"],
    );
    with(
        changed("(objectType Spoon_bar_1 SpoonType)", "(objectType Spoon SpoonType)"),
        &["`spoon`", "_bar_"],
    );
    let empty = kitchen::wrap(&format!("(define (:init (atLocation a b)) (:goal {SIMPLE}))"));
    with(error(&empty), &["no receptacle"]);
    with(error(&kitchen::wrap(&"(".repeat(1000))), &["`(:init`"]);
}

#[test]
fn a_goal_that_is_none_of_the_six_is_never_read_as_one() {
    let refused = |goal: &str, from: &str, to: &str, why: &str| {
        let other = goal.replacen(from, to, 1);
        assert_ne!(other, goal, "{from}");
        let error = error(&kitchen::file(&other));
        assert!(error.starts_with(NAME) && error.contains(why), "{error}");
    };
    refused(SIMPLE, "(inReceptacle ?o ?r)", "(inReceptacle ?o ?r) (isSliced ?o)", "issliced");
    refused(SIMPLE, "(inReceptacle ?o ?r)", "(not (inReceptacle ?o ?r))", "none of the six");
    refused(SIMPLE, "(inReceptacle ?o ?r)", "(inReceptacle ?x ?r)", "do not hang together");
    refused(SIMPLE, "(inReceptacle ?o ?r)", "(inReceptacle ?o)", "do not hang together");
    refused(SIMPLE, "(inReceptacle ?o ?r)", "(or (inReceptacle ?o ?r))", "`or`");
    refused(SIMPLE, "(inReceptacle ?o ?r)", "((inReceptacle ?o ?r))", "empty condition");
    refused(SIMPLE, "(inReceptacle ?o ?r)", "word", "a word");
    refused(SIMPLE, "(inReceptacle ?o ?r)", "(inReceptacle (?o) ?r)", "a list for an argument");
    refused(SIMPLE, "exists", "forall", "`forall`");
    refused(SIMPLE, "AppleType", "MelonType", "can never be met");
    refused(SIMPLE, "ShelfType", "SafeType", "can never be met");
    refused(CLEAN, "(isClean ?o)", "(isClean ?r)", "do not hang together");
    refused(CLEAN, "MugType", "SpoonType", "can never be met");
    refused(TWO, "(not (= ?o1 ?o2))", "(= ?o1 ?o2)", "none of the six");
    refused(TWO, "(not (= ?o1 ?o2))", "(not (= ?o1 ?o1))", "do not hang together");
    refused(TWO, "AppleType", "MugType", "do not hang together");
    refused(&TWO.replace("AppleType", "PearType"), "PearType", "VaseType", "do not hang together");
    assert!(error(&kitchen::file(&TWO.replace("AppleType", "VaseType"))).contains("1 such objects"));
    refused(LOOK, "(isToggled ?ot)", "(isToggled ?o)", "do not hang together");
    refused(LOOK, "DeskLampType", "FloorLampType", "can never be met");
}

#[test]
fn a_folder_of_another_kind_of_task_is_noticed() {
    let name = "train/pick_two_obj_and_place-Apple-None-Shelf-7/trial/game.tw-pddl";
    let error = Game::parse(name, &kitchen::file(SIMPLE)).unwrap_err().to_string();
    assert!(error.contains("wrong folder"), "{error}");
    let game = Game::parse(name, &kitchen::file(TWO)).unwrap();
    assert_eq!(game.floor_plan(), Some(7));
}

#[test]
fn a_tree_an_archive_and_a_file_hold_the_same_games() {
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (kitchen::file(SIMPLE), kitchen::file(TWO));
    let unsolvable = two.replace("\"solvable\":true", "\"solvable\":false");
    let files = [
        ("set/valid_seen/kitchen/1/game.tw-pddl", one.as_str()),
        ("set/train/kitchen/2/game.tw-pddl", two.as_str()),
        ("set/extra/kitchen/3/game.tw-pddl", one.as_str()),
        ("set/train/kitchen/4/game.tw-pddl", unsolvable.as_str()),
        ("set/train/kitchen/5/game.tw-pddl", "{ broken"),
        ("set/train/kitchen/5/notes.txt", "not a game"),
    ];
    let tree = root.path().join("tree");
    for (path, text) in files {
        write(&tree, path, text);
    }
    let packed = root.path().join("packed");
    std::fs::create_dir(&packed).unwrap();
    let bytes = files.map(|(path, text)| (path, text.as_bytes()));
    archive(&packed, "games.tar.zst", &bytes);
    // Files beside an archive are ignored.
    write(&packed, "samples/train/kitchen/2/game.tw-pddl", &two);

    let loaded = [tree.clone(), packed.clone(), packed.join("games.tar.zst")]
        .map(|path| AlfworldSet::load(&path).unwrap());
    for (set, errors) in &loaded {
        assert_eq!(set.splits(), ["train", "valid_seen", "extra"]);
        assert_eq!((set.len(), set.unsolvable(), errors.len()), (3, 1, 1));
        let error = errors[0].to_string();
        assert!(
            error.contains("kitchen/5/game.tw-pddl") && error.contains("not an ALFWorld game"),
            "{error}"
        );
        for game in loaded[0].0.iter() {
            assert_eq!(set.game(game.id()).unwrap(), game);
        }
    }
    assert!(loaded[1].1[0].to_string().contains("games.tar.zst:set/train"), "the entry is named");

    let (single, errors) = AlfworldSet::load(&tree.join(files[0].0)).unwrap();
    assert_eq!((single.len(), errors.len()), (1, 0));
    assert_eq!(
        single.game("valid_seen/kitchen/1").unwrap(),
        loaded[0].0.game("valid_seen/kitchen/1").unwrap()
    );

    let (some, errors) = AlfworldSet::load_splits(&packed, &["extra"]).unwrap();
    assert_eq!((some.splits(), errors.len()), (vec!["extra".to_owned()], 0));
    let error = AlfworldSet::load_splits(&packed, &["extra", "test"]).unwrap_err().to_string();
    assert!(error.contains("`test`") && error.contains("extra"), "{error}");
    let error = AlfworldSet::load_splits(&packed, &["test"]).unwrap_err().to_string();
    assert!(error.contains("no game here is of test; there is extra, train, valid_seen"), "{error}");

    std::fs::copy(packed.join("games.tar.zst"), packed.join("again.tar.zst")).unwrap();
    let (set, errors) = AlfworldSet::load(&packed).unwrap();
    assert_eq!((set.len(), errors.len()), (3, 2 + 3));
    assert!(errors.iter().any(|error| error.to_string().contains("occurs twice")));
}

#[test]
fn a_place_without_games_says_what_belongs_there() {
    let root = tempfile::tempdir().unwrap();
    let load = |path: &Path| AlfworldSet::load(path).unwrap_err().to_string();
    let empty = load(root.path());
    assert!(empty.contains("no playable ALFWorld game") && empty.contains(".tar.zst"), "{empty}");
    assert!(load(&root.path().join("missing")).contains("missing"));
    write(root.path(), "train/kitchen/1/game.tw-pddl", "{}");
    assert!(load(root.path()).contains("kitchen/1/game.tw-pddl"));
    write(root.path(), "train/kitchen/2/game.tw-pddl", "\u{0}");
    assert!(load(root.path()).contains("2 broken"));

    write(root.path(), "bad.tar.zst", "no archive at all");
    let bad = load(&root.path().join("bad.tar.zst"));
    assert!(bad.contains("bad.tar.zst") && bad.contains("archive"), "{bad}");
    let whole = kitchen::file(SIMPLE);
    archive(root.path(), "cut.tar.zst", &[("a/b/c/game.tw-pddl", whole.as_bytes())]);
    let bytes = std::fs::read(root.path().join("cut.tar.zst")).unwrap();
    std::fs::write(root.path().join("cut.tar.zst"), &bytes[..bytes.len() / 2]).unwrap();
    assert!(load(&root.path().join("cut.tar.zst")).contains("cut.tar.zst"));
    archive(root.path(), "latin.tar.zst", &[("a/b/c/game.tw-pddl", b"\xff\xfe")]);
    assert!(load(&root.path().join("latin.tar.zst")).contains("not UTF-8"));
}

#[test]
fn a_recording_of_the_kitchen_replays_and_a_changed_byte_is_found() {
    let set = AlfworldSet::from_games(vec![Game::parse(NAME, &kitchen::file(SIMPLE)).unwrap()]);
    let step = |action: &str| {
        serde_json::json!({"action": action, "observation": "", "reward": 0, "done": false, "won": false,
            "admissible_commands": []})
    };
    let actions =
        ["go to countertop 1", "take apple 2 from countertop 1", "jump", "move apple 2 to shelf 11"];
    let script = serde_json::json!({"gamefile": NAME, "mode": "script", "engine": "none",
        "initial": {"observation": "", "admissible_commands": []}, "steps": actions.map(step), "load_s": 0.5})
    .to_string();
    let run =
        |text: &str, dump: Option<&mut dyn std::io::Write>| replay::replay("r", text.as_bytes(), &set, dump);
    let mut dump = Vec::new();
    let report = run(&script, Some(&mut dump)).unwrap();
    // Two fields at the start and at each step, and reward, done and won at the last.
    assert_eq!((report.episodes, report.steps, report.differences.len()), (1, 4, 2 + 2 * 4 + 3));
    let dump = String::from_utf8(dump).unwrap();
    assert_eq!(run(&dump, None).unwrap().differences, []);
    let found = run(&dump.replacen("You pick up the apple 2", "You pick up the apple 3", 1), None)
        .unwrap()
        .differences;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].step, found[0].field), (2, "observation"));
    assert!(
        found[0].to_string().contains("episode 1 (train/kitchen/1), step 2, observation"),
        "{}",
        found[0]
    );

    let refused = |text: &str, parts: &[&str]| {
        let error = run(&format!("{dump}\n{text}"), None).unwrap_err().to_string();
        assert!(error.starts_with("r, line 3"), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    };
    refused("{", &["not JSON"]);
    refused("[]", &["not a JSON object"]);
    refused("{}", &["`gamefile`"]);
    refused(
        &dump.replace("\"gamefile\":\"train", "\"gamefile\":\"test"),
        &["`gamefile`", "test/kitchen", "load"],
    );
    refused(&dump.replacen("\"reward\":0", "\"reward\":0.5", 1), &["`steps`, step 1", "`reward`"]);
    refused(&dump.replacen("\"done\":false", "\"gone\":false", 1), &["`steps`, step 1", "`done`"]);
    refused(
        &dump.replacen("\"initial\":{\"observation\"", "\"initial\":{\"remark\"", 1),
        &["`initial`", "`observation`"],
    );
    refused(&dump.replacen("\"mode\":\"script\"", "\"mode\":3", 1), &["`mode`"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks that a mutated file is a playable game or an error.
    #[test]
    fn mutated_files_never_panic(
        goal in prop::sample::select(vec![SIMPLE, CLEAN, LOOK, TWO]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5, ".{0,12}"), 1..6),
        inside in any::<bool>(),
    ) {
        let mut text: Vec<char> =
            if inside { PROBLEM.replace("GOAL", goal) } else { kitchen::file(goal) }.chars().collect();
        for (at, kind, insert) in &edits {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            let end = (at + insert.chars().count()).min(text.len());
            match kind {
                0 => drop(text.splice(at..at, insert.chars())),
                1 => drop(text.drain(at..end)),
                2 => text.truncate(at),
                3 => {
                    let copy: Vec<char> = text[at..(at + 60).min(text.len())].to_vec();
                    drop(text.splice(at..at, copy));
                }
                _ => text[at] = ['(', ')', '"', ';', ' '][insert.len() % 5],
            }
        }
        let text: String = text.into_iter().collect();
        let file = if inside { kitchen::wrap(&text) } else { text };
        if let Ok(game) = Game::parse(NAME, &file) {
            let mut episode = Episode::new(std::sync::Arc::new(game));
            for step in 0..20 {
                let commands = episode.admissible();
                prop_assert!(episode.step(&commands[step * 7 % commands.len()]).understood);
            }
        }
    }

    #[test]
    fn odd_commands_never_panic(command in "(go to|take|move|examine|slice|use)? ?.{0,20}( from | to | with )?.{0,12}") {
        let game = Game::parse(NAME, &kitchen::file(TWO)).unwrap();
        let mut episode = Episode::new(std::sync::Arc::new(game));
        let listed = episode.admissible().iter().any(|listed| listed == command.trim());
        prop_assert_eq!(episode.step(&command).understood, listed);
    }
}
