//! Tests every native environment: its capabilities as in the guide's table, and hostile actions.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::fmt::Write as _;

use serde_json::{Value, json};
use turnwise_core::{Action, Environment, Purpose, Seed, Task, ToolCall};
use turnwise_env::registry::Registry;
use turnwise_env::world::{OpenOptions, World};

/// A small world of each kind that plays in this process.
pub(crate) const WORLDS: [(&str, &str); 8] = [
    ("alfworld", "generator = { size = \"tiny\", train = 6, valid_seen = 0, valid_unseen = 0 }"),
    ("webshop", "goals_per_product = 2\ngenerator = { products = 40 }"),
    ("sokoban", "generator = { train = 6, valid = 0, test = 0, min_moves = 2, max_moves = 10 }"),
    ("ezpoints", ""),
    ("search", "top_k = 2\ngenerator = { kinds = [\"single-hop\", \"two-hop\"], test = 8 }"),
    ("bfcl", "documents = \"tools\"\ngenerator = { train = 12, valid = 0, test = 0 }"),
    (
        "coding",
        "generator = { libraries = [\"roman\"], per_library = 6 }\nexpert = { look = true, run_tests = false }",
    ),
    ("tau2", "data = \"tests/data/tau2\""),
];

/// A domain with other tools than the one in [`WORLDS`]. No number of errors ends its episodes.
const SOLO: (&str, &str) = ("tau2", "data = \"tests/data/tau2\"\ndomain = \"telecom\"\nmax_errors = 1000");

/// Opens a world; `None` if this machine lacks what it needs, which is printed.
pub(crate) fn open(kind: &str, settings: &str, max_turns: usize) -> Option<Box<dyn World>> {
    let settings = settings.parse().unwrap();
    let mut note = |_: String| ();
    let mut options = OpenOptions { splits: &[], max_turns, note: &mut note };
    match Registry::builtin().kind(kind).unwrap().open(&settings, &mut options) {
        Ok(world) => Some(world),
        Err(error) => {
            assert_eq!(kind, "coding", "{error}");
            println!("skipped: coding: {error}");
            None
        }
    }
}

fn first_task(world: &dyn World) -> Task {
    let set = world.task_set();
    let splits = set.splits();
    splits.iter().flat_map(|split| set.tasks(split).unwrap()).next().unwrap()
}

fn reset(environment: &mut dyn Environment, task: &Task) {
    environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

fn hostile(tools: &[String]) -> Vec<Action> {
    let long = "a".repeat(1 << 20);
    let mut texts: Vec<String> = [
        "",
        " ",
        "\n",
        "\u{0}",
        "{",
        "}",
        "[",
        "]",
        "()",
        "{\"name\":",
        "do_it()",
        "do_it({})",
        "[do_it()]",
        "NaN",
        "1e999",
        "[mean(numbers=[1e999, -1e999])]",
        "[add(a=1e999 - 1e999, b=1)]",
        "[f(x=NaN)]",
        "f({\"x\":NaN})",
        "f({\"x\":\"\\ud800\"})",
        "\u{202e}\u{feff}",
        "search[",
        "click[]",
        "<search>",
        "<answer>",
        "</answer>",
        "[ls(**{})]",
        "[echo('a' * 9223372036854775807)]",
        "[power(base=10, exponent=1000000000)]",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.extend(["(", "[", "{", "{\"a\":", "[f(", "-", "not "].map(|open| open.repeat(100_000)));
    texts.push(format!("f({}1{})", "[".repeat(100_000), "]".repeat(100_000)));
    texts.push(format!("f({{\"x\":\"{long}\"}})"));
    texts.push(format!("[echo(content='{long}')]"));
    texts.push(long.clone());
    let mut actions: Vec<Action> = texts.into_iter().map(Action::from).collect();
    let arguments = [
        Value::Null,
        json!(7),
        json!("text"),
        json!([1]),
        json!({}),
        json!({"": null}),
        json!({"a": nested(120), "path": nested(120), "file_name": nested(120), "numbers": nested(120)}),
        json!({"path": long, "text": long, "file_name": long, "content": long, "keyword": long}),
        json!({"path": "../../etc/passwd", "file_name": "../../etc/passwd", "folder": "../../.."}),
        json!({"amount": 1e308, "value": -1e308, "a": 1e308, "b": 1e308, "ticket_id": u64::MAX, "lines": i64::MIN}),
    ];
    let names = tools.iter().map(String::as_str).chain(["", "do_it", "__class__", "a.b", long.as_str()]);
    for name in names {
        for arguments in &arguments {
            let call = ToolCall { id: "call_0".into(), name: name.to_owned(), arguments: arguments.clone() };
            actions.push(Action::Call(call));
        }
    }
    actions.push(Action::Malformed { text: long, error: "not a call".into() });
    actions
}

#[test]
fn hostile_actions_are_ordinary_steps_in_every_world() {
    for (kind, settings) in WORLDS.into_iter().chain([SOLO]) {
        let Some(world) = open(kind, settings, 1000) else { continue };
        let mut environment = world.task_set().environment().unwrap();
        let task = first_task(&*world);
        reset(&mut *environment, &task);
        let tools: Vec<String> = environment.tools().iter().map(|tool| tool.name().to_owned()).collect();
        for action in hostile(&tools) {
            let shown: String = action.text().chars().take(60).collect();
            let step = environment.step(&action).unwrap_or_else(|error| panic!("{kind}, {shown}: {error}"));
            assert!(!step.success && step.reward <= 0.0, "{kind}, {shown}");
            if step.terminated || step.truncated {
                reset(&mut *environment, &task);
            }
        }
    }
}

/// Returns true if a state saved and restored in another environment stays the same.
fn saves(world: &dyn World) -> bool {
    let task = first_task(world);
    let mut environment = world.task_set().environment().unwrap();
    reset(&mut *environment, &task);
    let Some(state) = environment.snapshot().unwrap() else { return false };
    let mut other = world.task_set().environment().unwrap();
    other.restore(&state).unwrap();
    other.snapshot().unwrap().unwrap() == state
}

fn row(kind: &str, world: &dyn World) -> String {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let task = first_task(world);
    let mut environment = world.task_set().environment().unwrap();
    reset(&mut *environment, &task);
    let has_hint = world.advisor(&task).unwrap().is_some();
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/worlds/{kind}.md"));
    assert!(page.is_file(), "{kind} has no page in docs/worlds");
    let actions = if environment.tools().is_empty() { "text" } else { "tool calls" };
    format!("| [`{kind}`]({kind}.md) | {actions} | {} | {} |", yes(saves(world)), yes(has_hint))
}

#[test]
fn the_guide_says_what_every_world_can_do() {
    let kinds: Vec<String> = Registry::builtin().kinds().map(|kind| kind.name().to_owned()).collect();
    let listed = WORLDS.map(|(kind, _)| kind);
    let missing: Vec<&String> = kinds.iter().filter(|kind| !listed.contains(&kind.as_str())).collect();
    // `swe` needs images, which the tests in `src/swe/tests.rs` make.
    assert_eq!(missing, ["swe", "process"], "a new kind needs a row: add it to WORLDS");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/worlds/index.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut changed = page.clone();
    for (kind, settings) in WORLDS {
        let Some(world) = open(kind, settings, 30) else { continue };
        let found = row(kind, &*world);
        let start = format!("| [`{kind}`]");
        let old = page.lines().find(|line| line.starts_with(&start));
        let mut message = String::new();
        let _ = write!(
            message,
            "docs/worlds/index.md should have the line\n{found}\nwrite it with TURNWISE_WRITE_DOCS=1"
        );
        match old {
            Some(old) if std::env::var_os("TURNWISE_WRITE_DOCS").is_some() => {
                changed = changed.replace(old, &found);
            }
            old => assert_eq!(old, Some(found.as_str()), "{message}"),
        }
    }
    if changed != page {
        std::fs::write(path, changed).unwrap();
    }
}
