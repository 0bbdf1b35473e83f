use std::io::Write as _;

use std::path::Path;

use super::*;
use crate::registry::Registry;

const INTRO: &str = "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around \
                     you, you see a bed 1, and a desk 1.\n\nYour task is to: put a mug in desk.";
const GOAL: &str = "put a mug in desk.";

fn history(turns: usize) -> Vec<(String, String)> {
    [
        (INTRO, "go to bed 1"),
        ("On the bed 1, you see a mug 2.", "take mug 2 from bed 1"),
        ("You pick it up.", "look"),
    ]
    .iter()
    .take(turns)
    .map(|(observation, action)| ((*observation).to_owned(), (*action).to_owned()))
    .collect()
}

fn admissible() -> Vec<String> {
    ["go to desk 1", "help", "inventory"].map(String::from).to_vec()
}

fn view<'a>(history: &'a [(String, String)], admissible: &'a [String], window: usize) -> PromptView<'a> {
    let observation = if history.is_empty() { INTRO } else { "You are here." };
    PromptView { goal: GOAL, history, window, observation, admissible, step: history.len() }
}

fn alfworld() -> impl Iterator<Item = &'static str> {
    ["alfworld", "alfworld-compact", "alfworld-react", "alfworld-verl-agent"].into_iter()
}

const MASKS: [ContextMask; 3] = [ContextMask::GoalAndHistory, ContextMask::Goal, ContextMask::History];

#[test]
fn a_compacted_prompt_has_the_first_observation_the_summary_and_the_newest_one() {
    let template = PromptTemplate::named("alfworld-compact").unwrap();
    let (history, admissible) = (history(3), admissible());
    let view = view(&history, &admissible, 0);
    assert_eq!(template.render_summarize(&view, true), "You are here.\nSummary:");
    assert_eq!(template.render_summarize(&view, false), "\nYou are here.\nSummary:");
    let compacted = Compacted { first_observation: INTRO, summary: "seen bed 1." };
    assert_eq!(
        template.render_compacted(&view, &compacted),
        format!("{INTRO}\nSummary: seen bed 1.\nYou are here.\n>")
    );
    for name in alfworld() {
        let template = PromptTemplate::named(name).unwrap();
        let prompt = template.render_compacted(&view, &compacted);
        let place = |text: &str| prompt.find(text).unwrap_or_else(|| panic!("{name}: {prompt}"));
        assert!(place("Your task is to: put a mug") < place("seen bed 1."), "{name}");
        assert!(place("seen bed 1.") < place("You are here."), "{name}");
        assert!(template.render_summarize(&view, true).contains("ummary"), "{name}");
    }
    let own = "base = \"plain\"\n[prompt]\ncompacted = \"{summary}\"";
    let error = PromptTemplate::parse(own, "own.toml").unwrap_err().to_string();
    assert!(error.contains("prompt.compacted") && error.contains("{first_observation}"), "{error}");
}

#[test]
fn the_full_prompt_reads_as_in_the_paper() {
    let template = PromptTemplate::named("alfworld").unwrap();
    let (history, admissible) = (history(3), admissible());
    let prompt = template.render(&view(&history, &admissible, 2), PromptKind::Full);
    let expected = "You are an expert agent operating in the ALFRED embodied Environment. Your task is to: put a mug in \
                    desk. Prior to this step, you have already taken 3 step(s). Below are the most recent 2 observations \
                    and the corresponding actions you took: [Observation 2: 'On the bed 1, you see a mug 2.', Action 2: \
                    'take mug 2 from bed 1']\n[Observation 3: 'You pick it up.', Action 3: 'look']. You are now at step \
                    4 and your current observation is: You are here.. Your admissible actions of the current situation \
                    are: ['go to desk 1'\n 'inventory'].\n\nNow it's your turn";
    assert!(prompt.starts_with(expected), "{prompt}");
    assert!(prompt.ends_with("present it within <action> </action> tags.\n"), "{prompt}");
}

#[test]
fn the_masked_prompt_reads_as_in_the_paper() {
    let template = PromptTemplate::named("alfworld").unwrap();
    let (history, admissible) = (history(1), admissible());
    let prompt =
        template.render(&view(&history, &admissible, 2), PromptKind::Masked(ContextMask::GoalAndHistory));
    let expected = "You are an expert agent operating in the ALFRED Embodied Environment. You are now at step 2 and \
                    your current observation is: You are here.. Your admissible actions";
    assert!(prompt.starts_with(expected), "{prompt}");
}

#[test]
fn masks_hide_what_they_say() {
    for name in alfworld() {
        let template = PromptTemplate::named(name).unwrap();
        let admissible = admissible();
        for turns in 0..=3 {
            for window in [0, 1, 2, 5] {
                let history = history(turns);
                let view = view(&history, &admissible, window);
                let full = template.render(&view, PromptKind::Full);
                assert!(
                    full.contains("put a mug in desk"),
                    "{name}: the full prompt states the goal\n{full}"
                );
                for mask in MASKS {
                    let prompt = template.render(&view, PromptKind::Masked(mask));
                    let hides_goal = mask != ContextMask::History;
                    assert_eq!(
                        !prompt.contains("put a mug in desk"),
                        hides_goal,
                        "{name} {mask:?} {turns}\n{prompt}"
                    );
                    let states_goal = prompt.contains("Your task is to");
                    assert!(!(hides_goal && states_goal), "{name} {mask:?} {turns}\n{prompt}");
                    let shows_history = turns > 0 && window > 0 && mask == ContextMask::Goal;
                    let last = history.last().map_or("no such text", |(_, action)| action.as_str());
                    assert_eq!(prompt.contains(last), shows_history, "{name} {mask:?} {turns}\n{prompt}");
                }
            }
        }
    }
}

#[test]
fn the_first_prompt_keeps_the_room() {
    let admissible = admissible();
    for name in alfworld() {
        let template = PromptTemplate::named(name).unwrap();
        let masked =
            template.render(&view(&[], &admissible, 2), PromptKind::Masked(ContextMask::GoalAndHistory));
        assert!(masked.contains("you see a bed 1, and a desk 1."), "{masked}");
        let first = template.render(&view(&[], &admissible, 2), PromptKind::Full);
        assert_eq!(first.matches("put a mug in desk").count(), 1, "{first}");
        assert_eq!(
            first,
            template.render(&view(&[], &admissible, 2), PromptKind::Masked(ContextMask::History))
        );
    }
}

#[test]
fn compact_prompts_are_the_worlds_own_words() {
    let template = PromptTemplate::named("alfworld-compact").unwrap();
    let (history, admissible) = (history(2), admissible());
    let first = template.render_concatenated_first(&view(&[], &admissible, 0));
    assert_eq!(first, format!("{INTRO}\n>"));
    let next = view(&history, &admissible, 0);
    assert_eq!(template.response("go to desk 1"), " go to desk 1\n");
    assert_eq!(template.render_concatenated_next(&next, true), "You are here.\n>");
    assert_eq!(template.render_concatenated_next(&next, false), "\nYou are here.\n>");
    assert_eq!(
        template.render(&view(&history, &admissible, 1), PromptKind::Full),
        "Your task is to: put a mug in desk.\nOn the bed 1, you see a mug 2.\n> take mug 2 from bed 1\nYou are here.\n>"
    );
    assert_eq!(template.stop(), ["\n"]);
}

#[test]
fn react_goes_on_where_the_response_stopped() {
    for name in ["alfworld-react", "webshop-react"] {
        let template = PromptTemplate::named(name).unwrap();
        let (history, admissible) = (history(1), admissible());
        let next = view(&history, &admissible, 0);
        let response = template.response_with_thought("Over there.", "go to desk 1");
        assert_eq!(response, "Thought: Over there.\nAction: go to desk 1\nObservation:");
        assert!(response.ends_with(&template.stop()[0]));
        assert_eq!(template.render_concatenated_next(&next, true), " You are here.\n");
        assert_eq!(template.render_concatenated_next(&next, false), "\nObservation: You are here.\n");
        let first = template.render_concatenated_first(&view(&[], &admissible, 0));
        assert!(first.ends_with(&format!("Observation: {INTRO}\n")), "{first}");
        assert_eq!(first.matches("Your task is to").count(), 1, "the example has its own words");
    }
}

#[test]
fn a_history_that_starts_late_keeps_its_numbers() {
    let template = PromptTemplate::named("alfworld").unwrap();
    let (history, admissible) = (history(3), admissible());
    let whole = view(&history, &admissible, 2);
    let late = PromptView { history: &history[1..], ..whole };
    assert_eq!(template.render(&whole, PromptKind::Full), template.render(&late, PromptKind::Full));
}

#[test]
fn text_after_the_goal_stays() {
    let template = PromptTemplate::named("alfworld").unwrap();
    let mut out = String::new();
    template.observation.push(
        &mut out,
        "win",
        "Room.\n\nYour task is to: win.\nA bed.\nYour task is to: win.",
        true,
    );
    assert_eq!(out, "Room.\nA bed.");
}

#[test]
fn words_of_the_goal_in_other_sentences_stay() {
    let template = PromptTemplate::named("alfworld").unwrap();
    let mut out = String::new();
    let text = "You look around.\nlook\nThe outlook is good.\nYour task is to: look";
    template.observation.push(&mut out, "look", text, true);
    // The words in `You look around` and `outlook` stay.
    assert_eq!(out, "You look around.\nThe outlook is good.");
    let shop = PromptTemplate::named("webshop").unwrap();
    out.clear();
    shop.observation.push(&mut out, "mug", "Instruction: [SEP] mug [SEP] Back [SEP] red mug [SEP] mug", true);
    assert_eq!(out, "'Back' [SEP] 'red mug'");
}

#[test]
fn verl_agents_prompts_are_its_own_to_the_byte() {
    let template = PromptTemplate::named("alfworld-verl-agent").unwrap();
    let (history, admissible) = (history(2), admissible());
    let tail = "Now it's your turn to take an action.\nYou should first reason step-by-step about the current situation. \
                This reasoning process MUST be enclosed within <think> </think> tags. \nOnce you've finished your \
                reasoning, you should choose an admissible action for current step and present it within <action> \
                </action> tags.\n";
    assert_eq!(
        template.render(&view(&[], &admissible, 2), PromptKind::Full),
        format!(
            "\nYou are an expert agent operating in the ALFRED Embodied Environment.\nYour current observation is: \
             {INTRO}\nYour admissible actions of the current situation are: ['go to desk 1'\n 'inventory'].\n\n{tail}"
        )
    );
    assert_eq!(
        template.render(&view(&history, &admissible, 1), PromptKind::Full),
        format!(
            "\nYou are an expert agent operating in the ALFRED Embodied Environment. Your task is to: {GOAL}\nPrior to this \
             step, you have already taken 2 step(s). Below are the most recent 1 observations and the corresponding \
             actions you took: [Observation 2: 'On the bed 1, you see a mug 2.', Action 2: 'take mug 2 from bed 1']\nYou \
             are now at step 3 and your current observation is: You are here.\nYour admissible actions of the current \
             situation are: ['go to desk 1'\n 'inventory'].\n\n{tail}"
        )
    );
}

#[test]
fn a_prompt_that_is_too_long_loses_its_history() {
    let template = PromptTemplate::named("webshop-verl-agent").unwrap();
    let admissible = ["search[<your query>]".to_owned(), "click[search]".to_owned()];
    let page = |length: usize| format!("Instruction: [SEP] a mug [SEP] {}", "x".repeat(length));
    let render = |length: usize, kind| {
        let history = [(page(10), "search[mug]".to_owned())];
        let observation = page(length);
        let view = PromptView {
            goal: "a mug",
            history: &history,
            window: 2,
            observation: &observation,
            admissible: &admissible,
            step: 1,
        };
        template.render(&view, kind)
    };
    let blank = render(0, PromptKind::Full).chars().count();
    let (longest, longer) = (13_000 - blank, 13_001 - blank);
    let full = render(longest, PromptKind::Full);
    assert!(full.chars().count() == 13_000 && full.contains("Action 1: 'search[mug]'"));
    // One more character than WEBSHOP_TEMPLATE_NO_HIS of verl-agent.
    let expected = format!(
        "\nYou are an expert autonomous agent operating in the WebShop e\u{2011}commerce environment. \nYour task is to: a \
         mug.\nYour current observation is: '{}'.\nYour admissible actions of the current situation are: \n[\n\
         'search[<your query>]',\n'click[search]',\n].\n\nNow it's your turn to take one action for the current step.\n\
         You should first reason step-by-step about the current situation, then think carefully which admissible action \
         best advances the shopping goal. This reasoning process MUST be enclosed within <think> </think> tags. \nOnce \
         you've finished your reasoning, you should choose an admissible action for current step and present it within \
         <action> </action> tags.\n",
        "x".repeat(longer)
    );
    assert_eq!(render(longer, PromptKind::Full), expected);
    for mask in MASKS {
        assert_eq!(
            render(longest, PromptKind::Masked(mask)).contains("search[mug]"),
            mask == ContextMask::Goal
        );
        assert!(!render(longer, PromptKind::Masked(mask)).contains("search[mug]"), "{mask:?}");
    }
}

#[test]
fn demonstrations_parse_back() {
    for name in alfworld() {
        let template = PromptTemplate::named(name).unwrap();
        let parser = crate::parse::ActionParser::new(template.rules().clone(), true);
        let parsed = parser.parse(&template.response("go to desk 1"), &admissible());
        assert!(parsed.valid && parsed.action == "go to desk 1", "{name}: {parsed:?}");
    }
}

fn refusal(source: &str) -> String {
    PromptTemplate::parse(source, "mine.toml").unwrap_err().to_string()
}

#[test]
fn a_users_file_replaces_what_it_names() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        "base = \"alfworld-compact\"\n[prompt]\nconcatenated_next = \"{{current_observation}}\\nWhat now?\"\n"
    )
    .unwrap();
    let template = PromptTemplate::load(file.path()).unwrap();
    let admissible = admissible();
    let history = history(1);
    let next = template.render_concatenated_next(&view(&history, &admissible, 0), true);
    assert_eq!(next, "You are here.\nWhat now?");
    assert_eq!(template.response("look"), " look\n");
}

#[test]
fn refusals_name_file_key_and_remedy() {
    let cases = [
        ("base = \"alfwrld\"", "did you mean `alfworld`?"),
        ("base = \"alfworld\"\n[promt]\nfirst = \"\"", "unknown key `promt`; did you mean `prompt`?"),
        (
            "base = \"alfworld\"\n[prompt]\nfrist = \"\"",
            "unknown key `prompt.frist`; did you mean `prompt.first`?",
        ),
        (
            "base = \"alfworld\"\n[prompt]\nfirst = \"x\"",
            "prompt.first: the placeholder {current_observation} is missing",
        ),
        (
            "base = \"alfworld\"\n[prompt]\nmasked = \"{task_description} {current_observation}\"",
            "prompt.masked: the placeholder {task_description} has no place here: this prompt hides goal and history",
        ),
        (
            "base = \"alfworld\"\n[prompt]\nlater = \"{task_descripton}\"",
            "prompt.later: unknown placeholder {task_descripton}; did you mean {task_description}?",
        ),
        (
            "base = \"alfworld\"\n[observation]\nkeep_goal = false",
            "prompt.first: with observation.keep_goal = false",
        ),
        (
            "base = \"alfworld\"\n[response]\nstyle = \"yaml\"",
            "response.style: unknown variant `yaml`, expected one of",
        ),
        ("base = \"alfworld\"\n[response]\nstop = [\"\"]", "response.stop: an empty string"),
        (
            "base = \"search-r1\"\n[response]\nreasoning = \"required\"",
            "response.reasoning: it has no effect here; it is for `style = \"tags\"`, `\"call\"`",
        ),
        ("base = \"search\"\n[response]\ncase = \"lower\"", "response.case: it has no effect here"),
        (
            "base = \"alfworld-compact\"\n[response]\nstyle = \"json\"\nblocks = \"any\"\ntail = 20",
            "response.tail: it has no effect here; it is for every style but `\"json\"`",
        ),
        (
            "base = \"alfworld-compact\"\n[response]\nlabel = \"Do\"",
            "it is for `style = \"label\"`; leave it out",
        ),
        ("base = \"search-compact\"\n[prompt]\nmasked = \"\"", "prompt.masked: is empty"),
        ("base = \"alfworld\"\nprompt = 3", "`prompt` must be a section"),
        ("[response]\nstyle = \"tags\"", "response.text is missing"),
        ("base = [", "TOML parse error"),
    ];
    for (source, expected) in cases {
        let message = refusal(source);
        assert!(message.starts_with("mine.toml: ") && message.contains(expected), "{source}\n{message}");
    }
    let missing = PromptTemplate::load(Path::new("no/such.toml")).unwrap_err().to_string();
    assert!(missing.starts_with("no/such.toml: "), "{missing}");
    let unknown = PromptTemplate::named("alfworld-compct").unwrap_err().to_string();
    assert!(unknown.contains("did you mean `alfworld-compact`?"), "{unknown}");
}

#[test]
fn masks_are_written_as_the_config_has_them() {
    let names = MASKS.map(|mask| serde_json::to_string(&mask).unwrap());
    assert_eq!(names, ["\"goal+history\"", "\"goal\"", "\"history\""]);
}

#[test]
fn templates_place_pictures_and_show_no_history() {
    let find = |name: &str| PromptTemplate::named(name).unwrap();
    assert!(find("alfworld").with_pictures().is_none());
    let history = [("Cards: 2 of hearts, 6 of clubs\nFormula:".to_owned(), "2".to_owned())];
    let view = PromptView {
        goal: "build a formula",
        history: &history,
        window: 1,
        observation: "Cards: 2 of hearts, 6 of clubs\nFormula: 2 *",
        admissible: &[],
        step: 1,
    };
    let picture = PICTURE.concat();
    let full = find("ezpoints-verl-agent").with_pictures().unwrap();
    let text = full.render(&view, PromptKind::Full);
    assert!(text.starts_with(&format!(
        "\n{picture}You are an expert card game player helping to build a formula in"
    )));
    assert!(text.contains("the current formula is: '2*'\n") && !text.contains("hearts"), "{text}");
    // The first turn has no history; multi-turn prompts reject pictures.
    let first = PromptView { history: &[], step: 0, ..view };
    assert_eq!(full.render(&first, PromptKind::Full), text);
    let masked = full.render(&view, PromptKind::Masked(ContextMask::GoalAndHistory));
    assert!(masked.contains(&picture) && masked.contains("'2*'") && !masked.contains("build"), "{masked}");
    assert_eq!(full.render(&view, PromptKind::Masked(ContextMask::Goal)), masked);
    assert_eq!(full.render(&view, PromptKind::Masked(ContextMask::History)), text);
    let small = find("sokoban-compact").with_pictures().unwrap();
    let prompts = [PromptKind::Full, PromptKind::Masked(ContextMask::GoalAndHistory)];
    let prompts = prompts.map(|kind| small.render(&view, kind));
    assert_eq!(prompts, [format!("build a formula.\n{picture}\n>"), format!("{picture}\n>")]);
    let visual = find("sokoban-verl-agent").with_pictures().unwrap().render(&view, PromptKind::Full);
    assert!(visual.contains(&format!("is shown in the image: {picture}\nYour admissible")), "{visual}");
    let source = |texts: &str| format!("base = \"sokoban-compact\"\n[pictures]\n{texts}");
    for (texts, reason) in [
        ("prompt = \"blind\"", "pictures.prompt: the placeholder {image} is missing"),
        ("prompt = \"{image} {action_history}\"", "prompts with pictures have no history"),
        ("masked = \"{image} {task_description}\"", "this prompt hides goal and history"),
        ("first = \"{image}\"", "unknown key `pictures.first`"),
    ] {
        let error = PromptTemplate::parse(&source(texts), "own.toml").unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn every_embedded_template_parses() {
    let registry = Registry::builtin();
    let names: Vec<&str> = registry.templates().map(|(name, _)| name).collect();
    assert!(names.contains(&"bfcl-tools"), "{names:?}");
    for name in names {
        PromptTemplate::named(name).unwrap();
    }
}
