//! Tests of the shop's rules with a small catalogue.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod demonstrations;
mod files;

use std::io::Write as _;
use std::process::{Command, Stdio};

use turnwise_core::{
    Action, ContextMask, EnvError, Environment as _, Metric, Purpose, Seed, Snapshot, Step, Task,
};
use turnwise_env::prompt::{PromptKind, PromptTemplate, PromptView};
use turnwise_env::webshop::goal::GoalKind;
use turnwise_env::webshop::page::{ObservationMode, StateKey};
use turnwise_env::webshop::shop::Ranker;
use turnwise_env::webshop::{
    HumanInstruction, Product, ProductOption, WebshopEnv, WebshopOptions, WebshopSet, token_set_ratio,
};

#[derive(Debug)]
struct Titles(Vec<(String, String)>);

impl Ranker for Titles {
    fn rank(&self, query: &str, limit: usize) -> Result<Vec<String>, EnvError> {
        let found = |title: &str| query.split(' ').any(|word| title.contains(word));
        let hits = self.0.iter().filter(|(_, title)| found(title)).map(|(asin, _)| asin.clone());
        Ok(hits.take(limit).collect())
    }
}

fn option(name: &str, values: &[&str]) -> ProductOption {
    ProductOption { name: name.to_owned(), values: values.iter().map(|value| (*value).to_owned()).collect() }
}

/// Returns twelve mugs. The first has options that share values with each other and with buttons.
fn products() -> Vec<Product> {
    (0..12)
        .map(|number| Product {
            asin: format!("MUG{number:07}"),
            title: format!("Stoneware Mug {number}"),
            category: "kitchen".to_owned(),
            query: "mugs".to_owned(),
            product_category: "Kitchen \u{203a} Mugs".to_owned(),
            description: if number == 0 { " \n ".to_owned() } else { "A mug.".to_owned() },
            bullet_points: vec![String::new(), "Holds tea".to_owned(), "\n".to_owned()],
            pricing: vec![12.0, 18.5][..=(number % 2)].to_vec(),
            options: match number {
                0 => vec![
                    option("color", &["navy", "caf\u{e9}", "description", "small"]),
                    option("size", &["small", "large"]),
                ],
                _ => vec![],
            },
            attributes: vec!["dishwasher safe".to_owned()],
            instruction_attributes: vec!["dishwasher safe".to_owned()],
            instruction: (number == 0).then(|| "Find me dishwasher safe mugs".to_owned()),
            human_instructions: vec![HumanInstruction {
                text: "a mug for tea.".to_owned(),
                attributes: vec!["holds tea".to_owned()],
                options: vec![],
            }],
            nouns: None,
        })
        .collect()
}

fn set(options: &WebshopOptions) -> WebshopSet {
    let ranker = products().into_iter().map(|product| (product.asin, product.title.to_lowercase())).collect();
    WebshopSet::from_products(products(), Box::new(Titles(ranker)), options).unwrap()
}

fn task(set: &WebshopSet, options: &str) -> Task {
    let tasks = (0..set.len()).map(|index| set.task(index).unwrap());
    tasks.into_iter().find(|task| task.goal.contains(options)).unwrap()
}

fn start(set: &WebshopSet, options: &str) -> WebshopEnv {
    let mut shop = set.webshop();
    shop.reset(&task(set, options), Seed::derive(0, Purpose::Environment, &[])).unwrap();
    shop
}

fn play(shop: &mut WebshopEnv, actions: &[&str]) -> Step {
    actions.iter().map(|&action| shop.step(&Action::from(action)).unwrap()).last().unwrap()
}

fn chosen(shop: &WebshopEnv) -> Vec<(&str, &str)> {
    let options = &shop.session().unwrap().visit().options;
    options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn an_episode_from_search_to_purchase() {
    let set = set(&WebshopOptions::default());
    assert_eq!(set.len(), 8);
    let goal = "color: navy, and size: large, and price lower than";
    let mut shop = set.webshop();
    let first = shop.reset(&task(&set, goal), Seed::derive(0, Purpose::Environment, &[])).unwrap();
    assert!(
        first
            .text()
            .starts_with("WebShop [SEP] Instruction: [SEP] Find me dishwasher safe mugs with color: navy")
    );
    assert!(first.text().ends_with("dollars [SEP] Search"));
    assert_eq!(first.admissible, ["search[<your query>]"]);

    let step = play(&mut shop, &["search[stoneware]"]);
    assert!(step.observation.text().contains("[SEP] Page 1 (Total results: 12) [SEP] Next > [SEP] MUG0000000 [SEP] Stoneware Mug 0 [SEP] $12.0 [SEP] MUG0000001 [SEP] Stoneware Mug 1 [SEP] $12.0 to $18.5 [SEP]"));
    assert_eq!(
        step.observation.admissible[..3],
        ["click[back to search]", "click[next >]", "click[mug0000000]"]
    );
    assert_eq!((step.reward, step.progress, step.understood), (0.0, Some(2.0 / 5.0), true));

    let step = play(&mut shop, &["click[mug0000000]"]);
    assert_eq!(step.progress, Some(3.0 / 5.0));
    let step = play(&mut shop, &["click[navy]", "click[large]"]);
    assert_eq!(step.progress, Some(1.0));
    let step = play(&mut shop, &["click[Buy Now]"]);
    assert!(step.observation.text().contains(r#"options [SEP] {"color": "navy", "size": "large"} [SEP]"#));
    assert!(
        step.observation
            .text()
            .ends_with("Your score (min 0.0, max 1.0) [SEP] 1.0 [SEP] Reward Details [SEP] None")
    );
    assert_eq!((step.reward, step.success, step.terminated, step.truncated), (1.0, true, true, false));
    assert_eq!(step.metrics, [Metric::last("task_score", 1.0), Metric::last("type_stand_in", 0.0)]);
    assert!(
        shop.step(&Action::from("click[navy]"))
            .unwrap_err()
            .to_string()
            .contains("the episode is over after 5 steps")
    );

    // Another mug: the type factor is approximate, and no option is met.
    let mut shop = start(&set, goal);
    let step = play(&mut shop, &["search[mug]", "click[mug0000002]", "click[buy now]"]);
    assert_eq!((step.reward, step.success, step.terminated), (0.0, false, true));
    assert_eq!(step.metrics, [Metric::last("task_score", 2.0 / 4.0), Metric::last("type_stand_in", 1.0)]);
}

#[test]
fn actions_that_do_nothing_leave_the_page() {
    let set = set(&WebshopOptions::default());
    let mut shop = start(&set, "color: navy");
    for action in ["click[search]", "click[mug0000000]", "search[]", "buy now", "", "click[next >] and more"]
    {
        let step = shop.step(&Action::from(action)).unwrap();
        assert!(!step.understood && step.observation.text().starts_with("WebShop [SEP] "), "{action:?}");
    }
}

#[test]
fn pages_go_on_beyond_the_results_and_back() {
    let set = set(&WebshopOptions::default());
    let mut shop = start(&set, "color: navy");
    let step = play(&mut shop, &["search[mug]", "click[next >]", "click[next >]"]);
    assert!(step.observation.text().ends_with("Page 3 (Total results: 12) [SEP] < Prev [SEP] Next >"));
    let step = play(&mut shop, &["click[< prev]", "click[mug0000010]", "click[features]"]);
    // An empty bullet point is a part; one with only a newline is not.
    assert!(
        step.observation.text().ends_with("< Prev [SEP]  [SEP] Holds tea"),
        "{}",
        step.observation.text()
    );
    let step = play(&mut shop, &["click[< prev]", "click[< prev]"]);
    assert!(step.observation.text().contains("Page 2 (Total results: 12)"));
    let step = play(&mut shop, &["click[back to search]", "search[nothing]"]);
    assert!(step.observation.text().ends_with("Page 1 (Total results: 0) [SEP] Next >"));
    let step = play(&mut shop, &["search[mug]", "click[mug0000001]", "search[mug]"]);
    assert!(step.understood && step.observation.text().contains("Page 1 (Total results: 12)"));
}

#[test]
fn options_with_the_quirks_of_the_original() {
    let set = set(&WebshopOptions { observation: ObservationMode::TextRich, ..WebshopOptions::default() });
    let mut shop = start(&set, "color: navy");
    let step = play(&mut shop, &["search[mug]", "click[mug0000000]", "click[small]"]);
    // Both options have `small`: the last one gets it, but both are shown as chosen.
    assert_eq!(chosen(&shop), [("size", "small")]);
    assert!(
        step.observation
            .text()
            .starts_with("You have clicked small.\nYou have clicked small.\nInstruction:\n")
    );
    let step = play(&mut shop, &["click[caf\u{e9}]", "click[large]"]);
    assert_eq!(chosen(&shop), [("size", "large"), ("color", "caf\u{e9}")]);
    // The original never marks non-ASCII values as chosen.
    assert!(step.observation.text().starts_with("You have clicked large.\nInstruction:\n"));
    // An option named like a button has the button's position and effect.
    let step = play(&mut shop, &["click[description]"]);
    assert_eq!(step.observation.admissible, ["click[back to search]", "click[< prev]"]);
    assert!(step.observation.text().ends_with("[button] < Prev [button_]\n"));
    // Chosen options survive a sub-page but not the return to the results.
    play(&mut shop, &["click[< prev]"]);
    assert_eq!(chosen(&shop).len(), 2);
    let step = play(&mut shop, &["click[< prev]"]);
    assert!(chosen(&shop).is_empty());
    assert!(step.observation.text().contains("\n\n[clicked button] MUG0000000 [clicked button_]\nStoneware Mug 0\n$12.0\n\n[button] MUG0000001 [button_]\n"));
}

#[test]
fn debug_searches_list_by_property() {
    let set = set(&WebshopOptions::default());
    let mut shop = start(&set, "color: navy");
    for (query, count) in [("<r>", 12), ("<c> kitchen", 12), ("<q> mugs", 12), ("<q> mug", 0)] {
        let step = shop.step(&Action::from(&format!("search[{query}]"))).unwrap();
        assert!(step.observation.text().contains(&format!("(Total results: {count})")), "{query}");
    }
    // `<a>` does not filter by attributes, which define the score. It searches for words, and no
    // title has them.
    let step = shop.step(&Action::from("search[<a> dishwasher safe]")).unwrap();
    assert!(step.observation.text().contains("(Total results: 0)"));
}

#[test]
fn attributes_are_shown_on_request() {
    let set = set(&WebshopOptions { show_attributes: true, ..WebshopOptions::default() });
    let mut shop = start(&set, "color: navy");
    let step = play(&mut shop, &["search[mug]", "click[mug0000003]", "click[attributes]"]);
    let end = "< Prev [SEP] dishwasher safe [SEP] kitchen [SEP] mugs [SEP] Kitchen \u{203a} Mugs";
    assert!(step.observation.text().ends_with(end));
}

#[test]
fn states_can_be_those_of_the_page_and_the_options() {
    let keys = |state_key, clicks: &[&str]| {
        let set = set(&WebshopOptions { state_key, ..WebshopOptions::default() });
        let mut shop = start(&set, "color: navy");
        let observation = play(&mut shop, clicks).observation;
        (observation.text().into_owned(), observation.state_key)
    };
    let page = ["search[mug]", "click[mug0000000]"];
    let chosen = |clicks: &[&str]| keys(StateKey::PageAndOptions, &[&page, clicks].concat());
    // The page's text does not show chosen options, so with `Page` the state does not change with a
    // click.
    let (text, key) = keys(StateKey::Page, &[&page[..], &["click[navy]"]].concat());
    assert_eq!((text, key), keys(StateKey::Page, &page));
    let (before, none) = chosen(&[]);
    let (after, navy) = chosen(&["click[navy]"]);
    assert_eq!((&before, none), (&after, None));
    assert_eq!(navy, Some(format!("{after}\nchosen: \"color\" = \"navy\"")));
    // The state depends on the page and the chosen values, not on the order of clicks or earlier
    // values.
    let both = chosen(&["click[navy]", "click[large]"]).1;
    assert_eq!(both, chosen(&["click[large]", "click[caf\u{e9}]", "click[navy]"]).1);
    assert!(both != navy && both != chosen(&["click[navy]", "click[large]", "click[features]"]).1);
    assert_eq!(chosen(&["click[navy]", "click[< prev]"]).1, None);
}

#[test]
fn episodes_are_cut_off_and_resumed() {
    let set = set(&WebshopOptions::default()).with_max_steps(7);
    let actions = [
        "search[mug]",
        "click[mug0000000]",
        "click[small]",
        "click[features]",
        "click[< prev]",
        "click[navy]",
    ];
    let mut shop = start(&set, "color: navy");
    for action in actions {
        let saved = shop.snapshot().unwrap().unwrap();
        let mut other = set.webshop();
        other.restore(&saved).unwrap();
        assert_eq!(
            other.step(&Action::from(action)).unwrap(),
            shop.step(&Action::from(action)).unwrap(),
            "{action}"
        );
    }
    let saved = String::from_utf8(shop.snapshot().unwrap().unwrap().0).unwrap();
    let last = shop.step(&Action::from("nothing")).unwrap();
    assert!(last.truncated && !last.terminated && shop.step(&Action::from("nothing")).is_err());
    for (from, to, expected) in [
        ("webshop.episode", "alfworld.episode", "this program reads"),
        ("Find me", "Find you", "is not the goal"),
        ("\"product\":0", "\"product\":99", "does not have"),
        ("\"query\":\"mug\"", "\"query\":null", "without a search"),
        ("\"number\":1", "\"number\":0", "a number that none has"),
        ("\"number\":1", "\"number\":18446744073709551615", "a number that none has"),
        ("\"item\"", "\"done\"", "cannot be saved"),
    ] {
        let wrong = saved.replace(from, to);
        assert_ne!(wrong, saved, "{from}");
        let error = set.webshop().restore(&Snapshot(wrong.as_bytes().to_vec())).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(matches!(set.webshop().step(&Action::from("look")), Err(EnvError::NotReset)));
}

#[test]
fn products_with_too_many_combinations_are_said() {
    let notes = |count: usize, goals_per_product: Option<usize>| {
        let mut products = products();
        products[1].instruction = Some("Find me mugs".to_owned());
        products[1].options = (0..count).map(|number| option(&format!("o{number}"), &["a", "b"])).collect();
        let options = WebshopOptions { goals_per_product, ..WebshopOptions::default() };
        let set = WebshopSet::from_products(products, Box::new(Titles(Vec::new())), &options).unwrap();
        set.notes().join("\n")
    };
    let many = notes(20, None);
    assert!(many.contains("1 products give no goals") && many.contains("set goals_per_product"), "{many}");
    assert!(!notes(20, Some(3)).contains("give no goals"));
    let beyond = notes(33, Some(3));
    assert!(beyond.contains("1 products give no goals") && beyond.contains("too many to draw"), "{beyond}");
    assert!(!beyond.contains("set goals_per_product"), "{beyond}");
}

#[test]
fn human_goals_name_no_options() {
    let set = set(&WebshopOptions { goals: GoalKind::Human, ..WebshopOptions::default() });
    assert_eq!(set.len(), 12);
    let goal = set.goal(0).unwrap();
    assert!(goal.instruction.starts_with("a mug for tea, and price lower than "), "{}", goal.instruction);
    assert!([20.0, 30.0, 40.0, 50.0, 60.0].contains(&goal.price_upper));
    let mut shop = start(&set, "mug");
    let step = play(&mut shop, &["search[mug]", "click[mug0000000]", "click[buy now]"]);
    assert_eq!(step.metrics[0].value, 1.0);
}

#[test]
fn prompts_show_the_page_and_hide_the_goal() {
    for (mode, name) in [
        (ObservationMode::Text, "webshop"),
        (ObservationMode::Text, "webshop-compact"),
        (ObservationMode::TextRich, "webshop"),
    ] {
        let set = set(&WebshopOptions { observation: mode, ..WebshopOptions::default() });
        let template = PromptTemplate::named(name).unwrap();
        let task = task(&set, "color: navy, and size: large");
        let mut shop = set.webshop();
        let mut observation = shop.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
        let mut history = Vec::new();
        for (step, action) in ["search[mug]", "click[mug0000000]", "click[navy]", "click[features]", "noise"]
            .into_iter()
            .enumerate()
        {
            let (text, admissible) = (&observation.text(), &observation.admissible);
            let view = PromptView {
                goal: &task.goal,
                history: &history,
                window: 2,
                observation: text,
                admissible,
                step,
            };
            let count = |kind| template.render(&view, kind).to_lowercase().matches("find me").count();
            assert_eq!(count(PromptKind::Full), 1, "{name} {step}");
            assert_eq!(count(PromptKind::Masked(ContextMask::History)), 1);
            assert_eq!(count(PromptKind::Masked(ContextMask::Goal)), 0);
            assert_eq!(count(PromptKind::Masked(ContextMask::GoalAndHistory)), 0);
            let next = shop.step(&Action::from(action)).unwrap();
            history
                .push((std::mem::replace(&mut observation, next.observation).into_text(), action.to_owned()));
        }
    }
}

#[test]
fn the_full_prompt_reads_as_in_the_paper() {
    let set = set(&WebshopOptions::default());
    let task = task(&set, "color: navy, and size: large");
    let mut shop = set.webshop();
    let first = shop.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
    let mut step = play(&mut shop, &["search[stoneware mug]", "click[next >]"]);
    step.observation.admissible.truncate(2);
    let history = [(first.text().into_owned(), "search[stoneware mug]".to_owned())];
    let view = PromptView {
        goal: &task.goal,
        history: &history,
        window: 2,
        observation: &step.observation.text(),
        admissible: &step.observation.admissible,
        step: 1,
    };
    let prompt = PromptTemplate::named("webshop").unwrap().render(&view, PromptKind::Full);
    let expected = format!(
        "You are an expert autonomous agent operating in the WebShop e-commerce environment. Your task is to: {}. Prior to \
         this step, you have already taken 1 step(s). Below are the most recent 1 observations and the corresponding actions \
         you took: [Observation 1: ''Search'', Action 1: 'search[stoneware mug]']. You are now at step 2 and your current \
         observation is: 'Back to Search' [SEP] 'Page 2 (Total results: 12)' [SEP] '< Prev' [SEP] 'Next >' [SEP] \
         'MUG0000010' [SEP] 'Stoneware Mug 10' [SEP] '$12.0' [SEP] 'MUG0000011' [SEP] 'Stoneware Mug 11' [SEP] '$12.0 to \
         $18.5'. Your admissible actions of the current situation are: ['click[back to search]',\n'click[< prev]',].\n\n\
         Now it's your turn to take one action",
        task.goal
    );
    assert!(prompt.starts_with(&expected), "{prompt}");
    let compact = PromptTemplate::named("webshop-compact").unwrap();
    let view = PromptView { observation: "Instruction: [SEP] x [SEP] Back to Search [SEP] Page 1", ..view };
    assert_eq!(
        compact.render(&view, PromptKind::Full),
        format!(
            "Task: {}.\nsearch\n> search[stoneware mug]\nback to search\npage 1\n>",
            task.goal.to_lowercase()
        )
    );
    assert_eq!(compact.render_concatenated_next(&view, true), "back to search\npage 1\n>");
}

/// Compares with the Python package on random strings; change the seed below for new ones.
#[test]
fn token_set_ratio_is_that_of_the_python_package() {
    let python = std::env::var("TURNWISE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = "import json,sys\nfrom thefuzz import fuzz\nprint(json.dumps([fuzz.token_set_ratio(a,b) for a,b in json.load(sys.stdin)]))";
    let imported = Command::new(&python).args(["-c", "import thefuzz, rapidfuzz"]).output();
    if !imported.is_ok_and(|output| output.status.success()) {
        println!("skipped: {python} has no package thefuzz (TURNWISE_PYTHON names another Python)");
        return;
    }
    let mut rng = Seed::derive(7, Purpose::World, &[]).rng();
    let letters: Vec<char> = "abcdeABC  -_'\u{e9}\u{130}\u{4e00}\u{937}12".chars().collect();
    let mut text = || -> String { (0..rng.below(24)).map(|_| letters[rng.below(letters.len())]).collect() };
    let pairs: Vec<(String, String)> = (0..3000).map(|_| (text(), text())).collect();
    let mut child = Command::new(&python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(serde_json::to_string(&pairs).unwrap().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let scores: Vec<u32> = serde_json::from_slice(&output.stdout).unwrap();
    for ((left, right), score) in pairs.iter().zip(scores) {
        assert_eq!(token_set_ratio(left, right), score, "{left:?} {right:?}");
    }
}
