//! Compares WebShop with the official files and recordings of the original.
//!
//! Reads the folder in `TURNWISE_DATA`; without it, the tests print that they are skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::collections::{BTreeSet, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use turnwise_core::TaskSet as _;
use turnwise_env::demonstration::DemonstrationRequest;
use turnwise_env::panel::{Choice, Panel, PinnedSplit};
use turnwise_env::webshop::action::Action;
use turnwise_env::webshop::demonstrations::demonstrate;
use turnwise_env::webshop::goal::{Goal, GoalKind, GoalOptions};
use turnwise_env::webshop::reward::{Judge, Matching, Score, TypeScore};
use turnwise_env::webshop::session::{Effect, Session};
use turnwise_env::webshop::{Product, Splits, WebshopOptions, WebshopSet, replay, token_set_ratio};

fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_DATA");
    if folder.is_none() {
        println!("skipped: TURNWISE_DATA not set");
    }
    folder.map(|folder| PathBuf::from(folder).join("webshop"))
}

fn unpacked(path: &Path) -> String {
    let mut decoder = zstd::stream::read::Decoder::new(std::fs::File::open(path).unwrap()).unwrap();
    decoder.window_log_max(31).unwrap();
    let mut text = String::new();
    decoder.read_to_string(&mut text).unwrap();
    text
}

fn lines(path: &Path) -> Vec<Value> {
    let text = unpacked(path);
    text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn set(folder: &Path, options: &WebshopOptions) -> WebshopSet {
    WebshopSet::open(folder, None, options).unwrap()
}

#[test]
fn goals_and_prices_are_the_recorded_draws() {
    let Some(folder) = data() else { return };
    let set = set(&folder, &WebshopOptions::default());
    let goals = lines(&folder.join("goals_synthetic_seed42.jsonl.zst"));
    assert_eq!((set.len(), goals.len()), (6910, 6910));
    for (index, expected) in goals.iter().enumerate() {
        let goal = set.goal(index).unwrap();
        let product = set.shop().catalogue().product(goal.product).unwrap();
        assert_eq!(goal.instruction, expected["instruction_text"].as_str().unwrap());
        assert_eq!(product.asin, expected["asin"].as_str().unwrap());
        assert_eq!(goal.price_upper, expected["price_upper"].as_f64().unwrap());
        assert_eq!(serde_json::json!(goal.attributes), expected["attributes"]);
        let GoalOptions::Named(options) = goal.options else { panic!("a synthetic goal") };
        let options: serde_json::Map<String, Value> =
            options.into_iter().map(|(name, value)| (name, value.into())).collect();
        assert_eq!(Value::Object(options), expected["goal_options"]);
        assert_eq!(
            (&product.query, &product.category),
            (&text(expected, "query"), &text(expected, "category"))
        );
    }
    let prices: HashMap<String, f64> =
        serde_json::from_str(&std::fs::read_to_string(folder.join("product_prices_seed42.json")).unwrap())
            .unwrap();
    let catalogue = set.shop().catalogue();
    assert_eq!(prices.len(), catalogue.len());
    for (asin, price) in prices {
        assert_eq!(catalogue.price(catalogue.find(&asin).unwrap()), price, "{asin}");
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap().to_owned()
}

/// A query of a search on a page without a search bar. The sessions were recorded with a list of
/// search results that lacks it; the search engine itself would find products.
const UNANSWERED: &str = "this has no search bar";

#[test]
fn every_recorded_session_replays_to_the_byte() {
    let Some(folder) = data() else { return };
    let set = set(&folder, &WebshopOptions::default());
    let text = unpacked(&folder.join("sessions.jsonl.zst"));
    let unanswered = [UNANSWERED.to_owned()];
    let report = replay::replay("sessions", text.as_bytes(), &set, &unanswered).unwrap();
    for difference in report.differences.iter().take(5) {
        println!("{difference:?}");
    }
    assert_eq!((report.sessions, report.steps, report.scores_not_compared), (25, 274, 12));
    assert!(report.differences.is_empty(), "{}", report.differences.len());

    // With real results that query differs: two pages each in six sessions, in three formats.
    let searched = replay::replay("sessions", text.as_bytes(), &set, &[]).unwrap();
    assert_eq!(searched.differences.len(), 36);

    // A single changed byte is reported.
    for (field, from, to) in [
        ("text", " (Total results: 50) [SEP] Next > [SEP] B0", " (Total results: 50) [SEP] Next > [SEP] B1"),
        ("text_rich", "[button] Back to Search [button_]\\n[", "[button] Back to search [button_]\\n["),
        ("clickables", "\"< prev\", \"description\"", "\"< prev\", \"descriptio\""),
        ("reward_info_without_pos", "\"r_att\": 1.0", "\"r_att\": 0.9"),
        ("goal.price_upper", "\"price_upper\": 60.0", "\"price_upper\": 70.0"),
    ] {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text, "{field}");
        let report = replay::replay("sessions", wrong.as_bytes(), &set, &unanswered).unwrap();
        let fields: Vec<&str> = report.differences.iter().map(|difference| difference.field).collect();
        assert_eq!(fields, [field]);
    }
}

#[test]
fn human_goals_are_those_of_the_products_that_have_any() {
    let Some(folder) = data() else { return };
    let set = set(&folder, &WebshopOptions { goals: GoalKind::Human, ..WebshopOptions::default() });
    let known: Vec<String> = serde_json::from_str(&unpacked(&folder.join("human_goals.json.zst"))).unwrap();
    assert_eq!(known.len(), 12087);
    let known: BTreeSet<String> = known.into_iter().map(|goal| letters(&goal)).collect();
    let asins: BTreeSet<u32> = (0..set.len()).map(|index| set.goal(index).unwrap().product).collect();
    assert_eq!(asins.len(), 13);
    for index in 0..set.len() {
        let goal = set.goal(index).unwrap();
        let text = goal.instruction.split(", and price lower than").next().unwrap().to_owned();
        assert!(known.contains(&letters(&text)), "{text}");
        assert!(matches!(goal.options, GoalOptions::Values(_)));
    }
}

/// Removes punctuation, which the published list of human goals lacks.
fn letters(text: &str) -> String {
    text.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
}

#[test]
fn splits_are_disjoint_and_by_product_share_no_product() {
    let Some(folder) = data() else { return };
    let count = |splits| {
        let set = set(&folder, &WebshopOptions { splits, ..WebshopOptions::default() });
        let ids: Vec<BTreeSet<String>> = set
            .splits()
            .iter()
            .map(|split| set.tasks(split).unwrap().into_iter().map(|task| task.id).collect())
            .collect();
        let all: usize = ids.iter().map(BTreeSet::len).sum();
        assert_eq!(ids.iter().flatten().collect::<BTreeSet<_>>().len(), all);
        assert_eq!(set.notes().iter().any(|note| note.contains("are in no split")), all < 6910);
        // No test goal is in training under another name.
        for (index, split) in set.splits().iter().enumerate().skip(1) {
            let later = Panel::pin(&set, split, Choice::default()).unwrap();
            for earlier in &set.splits()[..index] {
                PinnedSplit::pin(&set, earlier).unwrap().check_disjoint(&later).unwrap();
            }
        }
        let products: Vec<BTreeSet<&str>> =
            ids.iter().map(|ids| ids.iter().map(|id| id.split('/').nth(1).unwrap()).collect()).collect();
        let shared = products[0].intersection(products.last().unwrap()).count();
        (set.splits(), ids.iter().map(BTreeSet::len).collect::<Vec<_>>(), shared)
    };
    let (names, sizes, shared) = count(Splits::ByProduct);
    assert_eq!((names.as_slice(), shared), (["train", "valid", "test"].map(str::to_owned).as_slice(), 0));
    assert!(sizes[1] > 300 && sizes[2] > 300, "{sizes:?}");
    assert_eq!(count(Splits::Original).1, [5408, 999, 500]);
    let (_, sizes, shared) = count(Splits::VerlAgent);
    // The original's leak: most products of test goals also have training goals.
    assert!(sizes == [6408, 500] && shared > 100, "{shared}");
}

#[test]
fn thefuzz_is_reproduced() {
    let cases: Vec<(String, String, u32)> =
        serde_json::from_str(include_str!("../golden/token_set_ratio.json")).unwrap();
    for (left, right, score) in &cases {
        assert_eq!(token_set_ratio(left, right), *score, "{left:?} {right:?}");
    }
    assert_eq!(cases.len(), 1500);
    let changed =
        cases.iter().filter(|(left, right, score)| token_set_ratio(&format!("{left}q"), right) != *score);
    assert!(changed.count() > 700);
}

/// Returns the official folder with spaCy's nouns. The data keeps them under another name, since
/// the sessions were recorded with a stub of spaCy.
#[cfg(unix)]
fn with_nouns(folder: &Path) -> tempfile::TempDir {
    let with = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = match entry.file_name().into_string().unwrap() {
            name if name == "spacy_nouns.jsonl.zst" => "nouns.jsonl.zst".to_owned(),
            name => name,
        };
        std::os::unix::fs::symlink(entry.path().canonicalize().unwrap(), with.path().join(name)).unwrap();
    }
    with
}

#[cfg(unix)]
#[test]
fn the_type_factor_is_the_originals_to_the_last_bit() {
    let Some(folder) = data() else { return };
    let pairs = lines(&folder.join("type_factor.jsonl.zst"));
    assert_eq!(pairs.len(), 2000);
    let differences = |set: &WebshopSet| {
        let catalogue = set.shop().catalogue();
        let product = |pair: &Value, key: &str| {
            catalogue.product(catalogue.find(pair[key].as_str().unwrap()).unwrap()).unwrap()
        };
        let goal = set.goal(0).unwrap();
        let differs = |pair: &&Value| {
            let judge = Judge::new(goal.clone(), &product(pair, "goal"), Matching::Original);
            let found = judge.type_score(&product(pair, "purchased"));
            let score = (found.query_match, found.category_match, found.title_score, found.factor);
            let number = |key: &str| pair[key].as_f64().unwrap();
            let flag = |key: &str| pair[key].as_bool().unwrap();
            score != (flag("query_match"), flag("category_match"), number("title_score"), number("r_type"))
        };
        pairs.iter().filter(differs).count()
    };
    let named = with_nouns(&folder);
    let exact = set(named.path(), &WebshopOptions::default());
    assert!(!exact.notes().iter().any(|note| note.contains("type_stand_in")), "{:?}", exact.notes());
    assert_eq!(differences(&exact), 0);
    // The comparison can fail: content words instead of nouns give other scores.
    let stand_in = differences(&set(&folder, &WebshopOptions::default()));
    println!("{stand_in} of 2,000 pairs differ with content words in the place of nouns");
    assert!(stand_in > 200, "{stand_in}");
}

/// Returns the type factor by the original's `get_type_reward`, from recorded matches and the nouns
/// of both titles.
fn type_factor(parts: &Value, wanted: &[String], bought: &[String]) -> f64 {
    let distinct = |nouns: &[String]| nouns.iter().cloned().collect::<BTreeSet<_>>();
    let shared = distinct(wanted).intersection(&distinct(bought)).count();
    let title = if wanted.is_empty() { 0.2 } else { shared as f64 / wanted.len() as f64 };
    let flag = |key: &str| parts[key].as_bool().unwrap();
    match title {
        0.0 => 0.0,
        title if title < 0.1 => 0.1,
        title if flag("query_match") || flag("category_match") || title > 0.2 => 1.0,
        _ => 0.5,
    }
}

/// Returns the total reward by the original's `get_reward`, from recorded fractions and the numbers
/// of requirements.
fn total(parts: &Value, [attributes, options]: [usize; 2], factor: f64) -> f64 {
    let met = |key: &str, asked: usize| (parts[key].as_f64().unwrap_or(0.0) * asked as f64).round();
    let price = f64::from(u8::from(parts["r_price"].as_bool().unwrap()));
    let met = met("r_att", attributes) + met("r_option", options) + price;
    met / (attributes + options + 1) as f64 * factor
}

/// Compares rewards. For purchases other than the target, the recorded type factor is that of a
/// spaCy stub.
#[cfg(unix)]
#[test]
fn rewards_of_purchases_beside_the_target_are_the_originals_with_real_nouns() {
    let Some(folder) = data() else { return };
    let nouns: HashMap<String, Vec<String>> = lines(&folder.join("spacy_nouns.jsonl.zst"))
        .into_iter()
        .map(|line| (text(&line, "title"), serde_json::from_value(line["nouns"].clone()).unwrap()))
        .collect();
    let named = with_nouns(&folder);
    let rewards = |set: &WebshopSet| {
        let mut compared = Vec::new();
        for recorded in lines(&folder.join("sessions.jsonl.zst")) {
            let goal = set.goal(recorded["goal_idx"].as_u64().unwrap() as usize).unwrap();
            let target = set.shop().catalogue().product(goal.product).unwrap();
            let asked = [goal.attributes.len(), goal.options.len()];
            let judge = Judge::new(goal, &target, Matching::Original);
            let mut session = Session::new(set.shop().clone(), judge.goal().instruction.clone());
            for step in recorded["steps"].as_array().unwrap() {
                // After a query without recorded results the session differs.
                if step["action"] == format!("search[{UNANSWERED}]") {
                    break;
                }
                let bought = session.step(&Action::parse(step["action"].as_str().unwrap())).unwrap();
                let Some((index, product)) = session.product().filter(|_| bought == Effect::Bought) else {
                    continue;
                };
                if product.asin == target.asin {
                    continue;
                }
                let price = set.shop().catalogue().price(index);
                let score = judge.score(product, price, &session.visit().options);
                let parts = &step["reward_info_without_pos"];
                let factor = type_factor(parts, &nouns[&target.title], &nouns[&product.title]);
                let expected = total(parts, asked, factor);
                compared.push((score.total(), expected, step["reward"].as_f64().unwrap()));
            }
        }
        compared
    };
    let found = rewards(&set(named.path(), &WebshopOptions::default()));
    assert_eq!(found.len(), 12);
    for (score, expected, _) in &found {
        assert_eq!(score, expected, "{found:?}");
    }
    // The comparison can fail: rewards of the stub and of content words differ.
    let differ = |pairs: &[(f64, f64, f64)], of: fn(&(f64, f64, f64)) -> bool| {
        pairs.iter().filter(|pair| of(pair)).count()
    };
    assert_eq!(differ(&found, |(_, expected, stub)| expected != stub), 4);
    let stand_in = rewards(&set(&folder, &WebshopOptions::default()));
    assert!(differ(&stand_in, |(score, expected, _)| score != expected) > 0, "{stand_in:?}");
}

/// Takes attributes and type from the recording, since its products are not among the 1,000.
#[test]
fn the_reward_of_the_human_session_is_the_recorded_one() {
    let Some(folder) = data() else { return };
    let text = std::fs::read_to_string(folder.join("human_trajectory_20220427_1_6.jsonl")).unwrap();
    let pages: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done = pages.last().unwrap();
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let (asked, parts) = (&done["goal"], &done["reward_info"]);
    let goal = Goal {
        id: self::text(asked, "asin"),
        product: 0,
        instruction: self::text(asked, "instruction_text"),
        attributes: texts(&asked["attributes"]),
        options: GoalOptions::Values(texts(&asked["goal_options"])),
        price_upper: asked["price_upper"].as_f64().unwrap(),
    };
    let target = Product { title: self::text(asked, "name"), ..Product::default() };
    let counts = [goal.attributes.len(), goal.options.len()];
    let judge = Judge::new(goal, &target, Matching::Original);
    let price = done["content"]["price"].as_f64().unwrap();
    let reward = |chosen: &str| {
        let options = [("color".to_owned(), chosen.to_owned())];
        let found = judge.score(&Product::default(), price, &options);
        let number = |key: &str| parts[key].as_f64().unwrap();
        let flag = |key: &str| parts[key].as_bool().unwrap();
        let kind = TypeScore {
            query_match: flag("query_match"),
            category_match: flag("category_match"),
            title_score: number("title_score"),
            factor: number("r_type"),
            type_stand_in: false,
        };
        let attributes = (number("r_att") * found.attributes_asked as f64).round() as usize;
        Score { attributes, kind, ..found }.total()
    };
    let recorded = done["reward"].as_f64().unwrap();
    assert_eq!(reward(done["content"]["options"]["color"].as_str().unwrap()), recorded);
    assert_eq!(total(parts, counts, parts["r_type"].as_f64().unwrap()), recorded);
    // Choosing the requested colour increases the reward.
    assert!(reward("rl56 | 60 silver mist") > recorded);
}

#[test]
fn the_expert_reaches_official_goals() {
    let Some(folder) = data() else { return };
    let set = set(&folder, &WebshopOptions::default());
    let request = DemonstrationRequest { split: "test", count: 300, ..Default::default() };
    let made = demonstrate(&set, &request, 0.0).unwrap();
    println!("{} of 300", made.episodes.len());
    assert!(made.episodes.len() >= 200, "{} of 300", made.episodes.len());
    let steps: usize = made.episodes.iter().map(|episode| episode.turns.len()).sum();
    assert!(steps <= 12 * made.episodes.len());
}
