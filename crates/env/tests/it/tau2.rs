//! tau2-bench: tasks of a small checkout made for these tests, and recorded episodes of the original.
//!
//! The recorded plays are `tau2/DOMAIN.jsonl` in the folder named by `TURNWISE_DATA`, made by `tools/tau2_record.py` on the
//! checkout named by `TURNWISE_TAU2`. Without them, the tests print that they are skipped.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use turnwise_core::{
    Action, EnvError, Environment as _, Purpose, Seed, Snapshot, Step, TaskSet as _, Tool, ToolCall,
};
use turnwise_env::demonstration::DemonstrationRequest;
use turnwise_env::registry::Registry;
use turnwise_env::tau2::checkout::Checkout;
use turnwise_env::tau2::replay::replay;
use turnwise_env::tau2::user::{Scripted, Talk, User};
use turnwise_env::tau2::{Tau2Domain, Tau2Env, Tau2Kind, Tau2Options, Tau2Tasks};
use turnwise_env::world::OpenOptions;

fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tau2")
}

fn tasks(domain: Tau2Domain, options: Tau2Options) -> Tau2Tasks {
    Tau2Tasks::new(Checkout::read(&small(), domain).unwrap(), options, Arc::new(Scripted))
}

fn seed() -> Seed {
    Seed::derive(0, Purpose::Environment, &[])
}

fn call(name: &str, arguments: serde_json::Value) -> Action {
    Action::Call(ToolCall { id: "call_0".into(), name: name.into(), arguments })
}

/// Starts a task and plays the actions.
fn play(set: &Tau2Tasks, id: &str, actions: &[Action]) -> (Tau2Env, String, Vec<Step>) {
    let mut environment = set.tau2();
    let all = set.tasks("base").unwrap();
    let task = all.iter().find(|task| task.id == id).unwrap();
    let opening = environment.reset(task, seed()).unwrap().into_text();
    let steps = actions.iter().map(|action| environment.step(action).unwrap()).collect();
    (environment, opening, steps)
}

#[test]
fn the_gold_calls_solve_a_task_and_other_ends_do_not() {
    let set = tasks(Tau2Domain::Retail, Tau2Options::default());
    let cancel = |reason: &str| call("cancel_pending_order", json!({"order_id": "#W1", "reason": reason}));
    let done = Action::from("It is done.");
    let (environment, opening, steps) = play(&set, "0", &[cancel("no longer needed"), done.clone()]);
    assert!(opening.starts_with("# Store policy\nAsk who") && opening.contains("\n\nUser: "), "{opening}");
    assert!(opening.contains("I want to cancel my order #W1, which I do not need any more."), "{opening}");
    let result = steps[0].observation.text();
    // The gift card has back what it paid, and both texts have floats as the original does.
    assert!(result.contains(r#""status": "cancelled""#) && result.contains(r#""amount": 60.1"#), "{result}");
    let last = &steps[1];
    assert!(last.terminated && last.success && last.reward == 1.0, "{last:?}");
    assert!(last.observation.text().contains("###STOP###"));
    assert_eq!(environment.tools().iter().map(Tool::name).next(), Some("calculate"));
    assert_eq!(environment.tools().len(), 16);
    // Another reason, nothing, and more than was asked for are other databases.
    let failing: [&[Action]; 3] = [
        &[cancel("ordered by mistake"), done.clone()],
        std::slice::from_ref(&done),
        &[
            cancel("no longer needed"),
            call("cancel_pending_order", json!({"order_id": "#W3", "reason": "no longer needed"})),
            done.clone(),
        ],
    ];
    for actions in failing {
        let (_, _, steps) = play(&set, "0", actions);
        let last = steps.last().unwrap();
        assert!(last.terminated && !last.success && last.reward == 0.0, "{last:?}");
    }
}

#[test]
fn information_counts_if_it_is_asked_for() {
    let gold = call(
        "return_delivered_order_items",
        json!({"order_id": "#W2", "item_ids": ["101"], "payment_method_id": "credit_card_1"}),
    );
    let solved = |information: bool, words: &str| {
        let set = tasks(Tau2Domain::Retail, Tau2Options { information, ..Tau2Options::default() });
        let (_, _, steps) = play(&set, "1", &[gold.clone(), words.into()]);
        let metric = |name: &str| steps[1].metrics.iter().find(|metric| metric.name == name).unwrap().value;
        assert_eq!(metric("database_correct"), 1.0);
        assert_eq!(metric("information_given"), f64::from(u8::from(words.contains("20"))));
        steps[1].success
    };
    assert!(solved(true, "It cost $20.") && !solved(true, "It is done.") && solved(false, "It is done."));
}

#[test]
fn errors_are_those_of_the_original_and_too_many_end_the_episode() {
    let set = tasks(Tau2Domain::Retail, Tau2Options { max_errors: 4, ..Tau2Options::default() });
    let actions = [
        call("get_order_details", json!({"order_id": "#W9"})),
        call("do_it", json!({})),
        call("cancel_pending_order", json!({"order_id": "#W1"})),
        Action::Malformed { text: "{".into(), error: "not a call".into() },
    ];
    let (_, _, steps) = play(&set, "0", &actions);
    let texts: Vec<_> = steps.iter().map(|step| step.observation.text().into_owned()).collect();
    let missing =
        "Error: RetailTools.cancel_pending_order() missing 1 required positional argument: 'reason'";
    assert_eq!(texts, ["Error: Order not found", "Error: Tool 'do_it' not found.", missing, "not a call"]);
    let over: Vec<bool> = steps.iter().map(|step| step.terminated).collect();
    assert_eq!(over, [false, false, false, true]);
    assert!(!steps[3].success && !steps[3].understood);
}

/// A user whose second reply fails.
#[derive(Debug, Default)]
struct Unsteady(std::sync::atomic::AtomicUsize);

impl User for Unsteady {
    fn reply(&self, talk: Talk<'_>) -> Result<String, EnvError> {
        match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            1 => Err(EnvError::Transient("nobody answers".into())),
            place => Ok(format!("{place} after {} replies", talk.user.len())),
        }
    }
}

#[test]
fn a_step_can_be_repeated_if_the_user_was_not_reached_and_a_saved_talk_is_not_asked_for_again() {
    let user = Arc::new(Unsteady::default());
    let checkout = Checkout::read(&small(), Tau2Domain::Retail).unwrap();
    let set = Tau2Tasks::new(checkout, Tau2Options::default(), Arc::clone(&user) as Arc<dyn User>);
    let mut environment = set.tau2();
    environment.reset(&set.tasks("train").unwrap()[0], seed()).unwrap();
    let before = environment.snapshot().unwrap();
    assert!(environment.step(&"Who are you?".into()).unwrap_err().is_transient());
    assert_eq!(environment.snapshot().unwrap(), before);
    let step = environment.step(&"Who are you?".into()).unwrap();
    assert_eq!(step.observation.text(), "User: 2 after 1 replies");
    let saved = environment.snapshot().unwrap().unwrap();
    let mut other = set.tau2();
    other.restore(&saved).unwrap();
    assert_eq!(user.0.load(std::sync::atomic::Ordering::Relaxed), 3);
    assert_eq!(other.snapshot().unwrap().unwrap(), saved);
    assert!(!set.is_instant() && other.restore(&Snapshot(b"{}".to_vec())).is_err());
}

#[test]
fn a_model_plays_the_user_with_the_originals_instructions() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let kind = Tau2Kind::default().with_chat(Arc::new(move |user| {
        let (log, model) = (Arc::clone(&log), user.model.clone());
        Ok(Arc::new(move |messages: &[(&str, &str)]| {
            let messages: Vec<String> =
                messages.iter().map(|(role, text)| format!("{role}: {text}")).collect();
            log.lock().unwrap().push(messages);
            Ok(if log.lock().unwrap().len() < 3 { format!("I am {model}.") } else { "###STOP###".into() })
        }))
    }));
    let registry = Registry::builtin().with(kind);
    let mut note = |_: String| ();
    let mut options = OpenOptions { splits: &[], max_turns: 20, note: &mut note };
    let settings = format!("data = {:?}\nuser = {{ kind = \"model\", model = \"m\" }}", small());
    let world = registry.kind("tau2").unwrap().open(&settings.parse().unwrap(), &mut options).unwrap();
    let mut environment = world.task_set().environment().unwrap();
    let task = &world.task_set().tasks("train").unwrap()[0];
    assert!(environment.reset(task, seed()).unwrap().text().ends_with("\n\nUser: I am m."));
    environment.step(&"Who?".into()).unwrap();
    assert!(environment.step(&"It is done.".into()).unwrap().terminated);
    let talks = seen.lock().unwrap();
    assert!(
        talks[0][0].starts_with(
            "system: You are a customer. End with ###STOP###.\n\n\n<scenario>\nInstructions:\n\t"
        )
    );
    let later = [
        "user: Hi! How can I help you today?",
        "assistant: I am m.",
        "user: Who?",
        "assistant: I am m.",
        "user: It is done.",
    ];
    assert_eq!(talks[2][1..], later);
    // A program without models says so, and settings without a name are refused.
    for (settings, reason) in [
        ("user = { kind = \"model\", model = \"m\" }", "with_chat"),
        ("user.kind = \"model\"", "needs user.model"),
        ("domain = \"telecom\"\nuser = { kind = \"model\", model = \"m\" }", "has no user"),
    ] {
        let settings = format!("data = {:?}\n{settings}", small()).parse().unwrap();
        let error = Registry::builtin().kind("tau2").unwrap().open(&settings, &mut options).err().unwrap();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn the_expert_solves_every_task_and_splits_are_the_files() {
    let settings = format!("data = {:?}\nexpert.hasty_prob = 0.0", small()).parse().unwrap();
    let mut note = |_: String| ();
    let mut options = OpenOptions { splits: &[], max_turns: 20, note: &mut note };
    let world = Registry::builtin().kind("tau2").unwrap().open(&settings, &mut options).unwrap();
    assert_eq!(world.task_set().splits(), ["train", "test", "base"]);
    let ids = |split: &str| -> Vec<String> {
        world.task_set().tasks(split).unwrap().into_iter().map(|task| task.id).collect()
    };
    assert_eq!(
        (ids("train"), ids("test")),
        (vec!["0".to_owned(), "2".into()], vec!["1".to_owned(), "3".into()])
    );
    let request = DemonstrationRequest { split: "base", count: 4, max_turns: 20, ..Default::default() };
    let found = world.demonstrations(&request).unwrap().unwrap();
    assert_eq!((found.episodes.len(), found.dropped), (4, 0));
    assert!(found.episodes[3].final_observation.contains("###TRANSFER###"));
}

#[test]
fn a_folder_that_is_not_a_checkout_is_refused_with_the_fix() {
    let fails = |folder: &Path| Checkout::read(folder, Tau2Domain::Retail).unwrap_err().to_string();
    let folder = tempfile::tempdir().unwrap();
    let error = fails(folder.path());
    assert!(error.contains("data/tau2/domains") && error.contains("git clone"), "{error}");
    std::fs::create_dir_all(folder.path().join("data/tau2/domains/retail")).unwrap();
    let path = folder.path().join("data/tau2/domains/retail/tasks.json");
    assert!(fails(folder.path()).contains("tasks.json"));
    std::fs::write(&path, "[{\"id\": 5}]").unwrap();
    assert!(fails(folder.path()).contains("tasks.json: invalid type"), "{}", fails(folder.path()));
    let mut note = |_: String| ();
    let mut options = OpenOptions { splits: &[], max_turns: 20, note: &mut note };
    let registry = Registry::builtin();
    let error = registry.kind("tau2").unwrap().open(&toml::Table::new(), &mut options).err().unwrap();
    assert!(error.to_string().contains("[env] data is not set"), "{error}");
}

/// Returns a recording and the checkout, or prints what is missing and returns `None`.
fn recording(domain: &str) -> Option<(String, PathBuf)> {
    let folder = |name: &str| {
        let folder = std::env::var_os(name);
        if folder.is_none() {
            println!("skipped: {name} not set");
        }
        folder.map(PathBuf::from)
    };
    let (data, checkout) = (folder("TURNWISE_DATA")?, folder("TURNWISE_TAU2")?);
    let path = data.join(format!("tau2/{domain}.jsonl"));
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        println!("skipped: there is no {}", path.display());
    }
    Some((text?, checkout))
}

fn compare(domain: &str) {
    let Some((text, checkout)) = recording(domain) else { return };
    let report = replay(domain, text.as_bytes(), &checkout).unwrap();
    for difference in report.differences.iter().take(20) {
        println!("{difference}");
    }
    println!("{domain}: {}", report.counts);
    assert!(report.differences.is_empty() && !report.counts.starts_with("0 "), "{}", report.counts);
    // A changed recording differs.
    let line = text.lines().find(|line| line.contains("\"changes\": {\"")).unwrap();
    for (from, to, field) in [
        ("\"results\": [\"", "\"results\": [\"x", "result"),
        ("\"changes\": {\"", "\"changes\": {\"x", "state"),
        ("\"database\": true", "\"database\": false", "database"),
    ] {
        let line = line.replacen(from, to, 1);
        let report = replay(domain, line.as_bytes(), &checkout).unwrap();
        assert!(report.differences.iter().any(|difference| difference.field == field), "{field}");
    }
}

#[test]
fn every_recorded_play_of_retail_is_the_same() {
    compare("retail");
}

/// Plays the actions of a telecom task, and returns the opening and the steps.
fn solve(id: &str, actions: &[Action]) -> (String, Vec<Step>) {
    let set = tasks(Tau2Domain::Telecom, Tau2Options::default());
    let (_, opening, steps) = play(&set, id, actions);
    (opening, steps)
}

#[test]
fn a_ticket_is_solved_with_the_tools_of_both_sides() {
    let done = call("done", json!({}));
    let (opening, steps) = solve("[mobile_data]off", &[call("toggle_data", json!({})), done.clone()]);
    assert!(opening.starts_with("<main_policy>\nSolve the ticket.\n\n</main_policy>"), "{opening}");
    assert!(opening.ends_with("\n\nTicket: Mobile data of Ann Lee, 555-0001, does not work."), "{opening}");
    let bar = "Mobile Data is now ON.\nStatus Bar: 📶⁴ Excellent | 5G | 📱 Data Enabled | 🔋 70%";
    assert_eq!(steps[0].observation.text(), bar);
    assert!(steps[1].terminated && steps[1].success, "{:?}", steps[1]);
    let (_, steps) = solve("[mobile_data]off", std::slice::from_ref(&done));
    assert!(steps[0].terminated && !steps[0].success && steps[0].reward == 0.0);
    let (_, steps) = solve("[mobile_data]off", &["I am done.".into()]);
    assert!(steps[0].terminated && !steps[0].success && steps[0].metrics.is_empty());
    // The gold call has to be made, whatever its summary says.
    let transfer = call("transfer_to_human_agents", json!({"summary": "The card is locked."}));
    let (_, steps) = solve("[service]locked", &[transfer, done.clone()]);
    assert!(steps[1].success);
    let (_, steps) = solve("[service]locked", &[done]);
    assert!(!steps[0].success);
}

#[test]
fn a_bill_is_paid_on_the_phone() {
    let id = json!({"customer_id": "C1", "line_id": "L1"});
    let actions = [
        call("check_payment_request", json!({})),
        call("send_payment_request", json!({"customer_id": "C1", "bill_id": "B7"})),
        call("make_payment", json!({})),
        call("get_details_by_id", json!({"id": "B7"})),
        call("resume_line", id.clone()),
        call("check_installed_apps", json!({})),
        call("refuel_data", json!({"customer_id": "C1", "line_id": "L1", "gb_amount": 2})),
        call("reboot_device", json!({})),
        call("done", json!({})),
    ];
    let (_, steps) = solve("[service]bill", &actions);
    let text = |place: usize| steps[place].observation.text().into_owned();
    assert_eq!(text(0), "No payment request has been made.");
    assert_eq!(text(2), "Payment of 10.0 USD has been made for bill B7.");
    assert!(
        text(3).contains(r#""status": "Paid""#) && text(3).contains(r#""description": "Charge for line L1""#)
    );
    assert!(text(4).contains(r#""status": "Active""#), "{}", text(4));
    // In the order of the file, not of the alphabet.
    assert_eq!(text(5), "The following apps are installed on the phone: messaging, camera");
    let refueled = r#"{"message": "Successfully added 2 GB of data for line L1 for $3.00", "new_data_refueling_gb": "2.0", "charge": "3.0"}"#;
    assert_eq!(text(6), refueled);
    assert!(steps[8].success);
}

#[test]
fn the_expert_solves_every_ticket() {
    let settings = format!("data = {:?}\ndomain = \"telecom\"", small()).parse().unwrap();
    let mut note = |_: String| ();
    let mut options = OpenOptions { splits: &[], max_turns: 20, note: &mut note };
    let world = Registry::builtin().kind("tau2").unwrap().open(&settings, &mut options).unwrap();
    let request = DemonstrationRequest { split: "base", count: 4, max_turns: 20, ..Default::default() };
    let found = world.demonstrations(&request).unwrap().unwrap();
    assert_eq!((found.episodes.len(), found.dropped), (4, 0));
    assert_eq!(found.episodes[0].task.kind, "mobile_data");
    assert!(found.episodes[0].tools.iter().any(|tool| tool.name() == "done"));
}

#[test]
fn every_recorded_play_of_telecom_is_the_same() {
    compare("telecom");
}

/// The expert's episodes in the tasks of the checkout named by `TURNWISE_TAU2`.
#[test]
fn the_expert_solves_the_tasks_of_the_checkout() {
    for domain in ["retail", "telecom"] {
        let Some((_, checkout)) = recording(domain) else { return };
        let settings = format!("data = {checkout:?}\ndomain = \"{domain}\"").parse().unwrap();
        let mut note = |_: String| ();
        let mut options = OpenOptions { splits: &[], max_turns: 60, note: &mut note };
        let world = Registry::builtin().kind("tau2").unwrap().open(&settings, &mut options).unwrap();
        let count = world.task_set().tasks("base").unwrap().len();
        let request = DemonstrationRequest { split: "base", count, max_turns: 60, ..Default::default() };
        let found = world.demonstrations(&request).unwrap().unwrap();
        println!("{domain}: {} of {count}", found.episodes.len());
        assert_eq!(found.dropped, 0, "{domain}");
    }
}
