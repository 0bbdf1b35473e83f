use super::*;
use crate::prompt::PromptTemplate;

fn tags(reasoning: ReasoningDemand) -> ResponseRules {
    ResponseRules { reasoning, ..ResponseRules::new(Style::Tags) }
}

fn verl_agent() -> ResponseRules {
    PromptTemplate::named("alfworld-verl-agent").unwrap().rules().clone()
}

fn parse(rules: &ResponseRules, response: &str) -> (String, bool) {
    let parsed = ActionParser::new(rules.clone(), false).parse(response, &[]);
    assert_eq!(parsed.valid, parsed.reason.is_none());
    (parsed.action, parsed.valid)
}

fn verl(response: &str) -> (String, bool) {
    parse(&verl_agent(), response)
}

fn ok(action: &str) -> (String, bool) {
    (action.to_owned(), true)
}

fn bad(action: &str) -> (String, bool) {
    (action.to_owned(), false)
}

#[test]
fn tags_by_the_projects_own_rule() {
    let cases = [
        ("<think>so</think><action> look </action>", ok("look")),
        ("Well. <think>so</think>\n<action>\nlook\n</action> Done.", ok("look")),
        ("<think>use <action>x</action> tags</think><action>look</action>", ok("look")),
        ("<action>look</action>", bad("look")),
        ("<think>so</think><action>look</action><action>go</action>", bad("look")),
        ("<think>so</think><action>a<action>look</action>", bad("a<action>look")),
        ("<think>so</think><action>look</action></action>", bad("look")),
        ("<think>so</think><action>  </action>", bad("")),
        ("<action>look</action><think>so</think>", bad("look</action><think>so</think>")),
        ("<think>so</think><Action>look</Action>", bad("o</think><Action>look</Action>")),
        ("<think>so \n", bad("<think>so")),
        ("", bad("")),
    ];
    for (response, expected) in cases {
        assert_eq!(parse(&tags(ReasoningDemand::Required), response), expected, "{response}");
    }
    assert_eq!(parse(&tags(ReasoningDemand::Optional), "<action>look</action>"), ok("look"));
}

#[test]
fn reasoning_that_is_not_closed_goes_on_to_the_end() {
    for demand in [ReasoningDemand::Required, ReasoningDemand::Optional] {
        let style = &tags(demand);
        let cut = "<think>Maybe <action>look</action>, but no";
        assert_eq!(parse(style, cut), bad("<action>look</action>, but no"), "{demand:?}");
        let reopened = "<think>a</think><action>look</action><think>and now";
        assert_eq!(parse(style, reopened), ok("look"), "{demand:?}");
        // A lone closing tag has no effect.
        assert_eq!(parse(style, "</think><action>look</action>").0, "look", "{demand:?}");
    }
}

#[test]
fn lines() {
    assert_eq!(parse(&ResponseRules::new(Style::Line), " go to desk 1\n"), ok("go to desk 1"));
    assert_eq!(parse(&ResponseRules::new(Style::Line), " go to desk 1"), ok("go to desk 1"));
    assert_eq!(parse(&ResponseRules::new(Style::Line), "look\r\ngo"), ok("look"));
    assert_eq!(parse(&ResponseRules::new(Style::Line), " \nlook"), bad(""));
    assert_eq!(parse(&ResponseRules::new(Style::Line), ""), bad(""));
    // The prompt may contain the opening tag.
    assert_eq!(parse(&ResponseRules::new(Style::Line), "<think>\nSo.\n</think>\n\nlook\ngo"), ok("look"));
    assert!(!parse(&ResponseRules::new(Style::Line), "<think>\nlook").1);
}

#[test]
fn admissibility_counts_only_when_asked() {
    let admissible = ["look".to_owned()];
    for (strict, response, valid) in [(true, "look", true), (true, "fly", false), (false, "fly", true)] {
        let parsed = ActionParser::new(ResponseRules::new(Style::Line), strict).parse(response, &admissible);
        assert_eq!((parsed.valid, parsed.action.as_str()), (valid, response));
    }
    let parser = ActionParser::new(ResponseRules::new(Style::Line), true);
    let listed = ["search[<your query>]", "click[buy now]"].map(str::to_owned);
    for (response, valid) in
        [("search[red mug]", true), ("search[ ]", false), ("search[red", false), ("click[x]", false)]
    {
        assert_eq!(parser.parse(response, &listed).valid, valid, "{response}");
    }
    let parsed = ActionParser::new(ResponseRules::new(Style::Line), true).parse("", &admissible);
    assert_eq!(parsed.reason, Some("the first line is empty"));
}

#[test]
fn react_takes_the_first_action_line() {
    let parser = ActionParser::new(ResponseRules::new(Style::Label), false);
    for (response, action, valid) in [
        ("Thought: there.\nAction: go to desk 1\nObservation:", "go to desk 1", true),
        ("Action: look", "look", true),
        ("Thought: a\n Action 12 :  look \nObservation: b\nAction: go", "look", true),
        ("Thought: Action: look\nAction: search[a: b]", "search[a: b]", true),
        ("Thought: nothing\nAction:\nlook", "", false),
        ("I look.", "I look.", false),
        // Drafts inside the reasoning do not count.
        ("<think>\nPerhaps\nAction: go to desk 1\nbut no</think>\nAction: look", "look", true),
        ("<think>\nAction: look", "<think>\nAction: look", false),
        ("Actions: look", "Actions: look", false),
    ] {
        let parsed = parser.parse(response, &[]);
        assert_eq!((parsed.action.as_str(), parsed.valid), (action, valid), "{response}");
    }
    let strict = ActionParser::new(ResponseRules::new(Style::Label), true);
    assert!(!strict.parse("Action: fly", &["look".to_owned()]).valid);
}

#[test]
fn verl_agents_quirks() {
    // Tags are lower-cased too; the reasoning may be anywhere.
    assert_eq!(verl("<think>a</think><ACTION> Go To Desk 1 </Action>"), ok("go to desk 1"));
    assert_eq!(verl("<action>look</action></think><think>"), ok("look"));
    assert_eq!(verl("<think><action>a</think><action>look</action>"), ok("a</think><action>look"));
    assert_eq!(verl("<think></action></think><action>look</action>"), ok(""));
    assert_eq!(verl("<think></think><action>look</action><action>go</action>"), ok("look"));
    // Reasoning tags are matched before lower-casing.
    assert_eq!(verl("<Think>a</Think><action>look</action>"), bad("look"));
    assert_eq!(verl("<think>a<action>look</action>"), bad("look"));
    assert_eq!(
        verl("<think>a</think> I would rather Go To Desk 1 now "),
        bad("would rather go to desk 1 now ")
    );
    assert_eq!(verl("<think>a</think><action>look"), bad("<think>a</think><action>look"));
    assert_eq!(verl("short"), bad("short"));
    let short = PromptTemplate::named("webshop-verl-agent").unwrap().rules().clone();
    assert_eq!(short.tail, 20);
    assert_eq!(parse(&short, "I would rather Go To Desk 1 now "), bad("er go to desk 1 now "));
    // Chinese characters make it invalid; other scripts do not.
    assert_eq!(verl("<think>好</think><action>look</action>"), bad("look"));
    assert_eq!(verl("<think>é ひ 한</think><action>look</action>"), ok("look"));
    // Characters, not bytes, counted after lower-casing.
    let tail: String = std::iter::repeat_n('é', 30).collect();
    assert_eq!(verl(&format!("xx{}", tail.to_uppercase())), bad(&tail));
    assert_eq!(verl(&"İ".repeat(20)), bad(&"i\u{307}".repeat(15)));
    // Python strips four control characters that are not Unicode white space.
    assert_eq!(verl("<think></think><action>\u{1f}look\u{a0}\u{1c}</action>"), ok("look"));
    assert_eq!(verl("<think></think><action>fly</action>"), ok("fly"));
}

#[test]
fn tags_label_and_case_are_the_templates() {
    let rules = |response: &str| {
        let source = format!("base = \"alfworld\"\n[response]\n{response}");
        PromptTemplate::parse(&source, "mine.toml").map(|template| template.rules().clone())
    };
    let own =
        rules("action_tags = [\"<tool_call>\", \"</tool_call>\"]\nreasoning_tags = [\"<r>\", \"</r>\"]")
            .unwrap();
    assert_eq!(parse(&own, "<r>a</r><tool_call>Look</tool_call>"), ok("Look"));
    assert!(!parse(&own, "<r>a</r><action>Look</action>").1);
    assert!(!parse(&own, "<r>a<tool_call>Look</tool_call>").1);
    let own = rules("case = \"lower\"\nreasoning = \"optional\"\nforbidden = [\"x\", \"z\"]").unwrap();
    assert_eq!(parse(&own, "<ACTION>Look</ACTION>"), ok("look"));
    assert_eq!(parse(&own, "<action>Look</action> y"), bad("look"));
    let own = rules("style = \"label\"\nlabel = \"Do\"\ntail = 4\ntrim_tail = false").unwrap();
    assert_eq!(parse(&own, "Do 2: look"), ok("look"));
    assert_eq!(parse(&own, "Action: look "), bad("ook "));
    for (response, expected) in [
        ("action_tags = [\"\", \"</a>\"]", "response.action_tags: "),
        ("reasoning_tags = [\"|\", \"|\"]", "response.reasoning_tags: "),
        ("label = \"Do:\"", "response.label: "),
        ("case = \"lower\"\naction_tags = [\"<A>\", \"</A>\"]", "in lower case"),
        ("blocks = \"two\"", "unknown variant `two`, expected one of `one`, `any`, `first`"),
    ] {
        let error = rules(response).unwrap_err().to_string();
        assert!(error.contains(expected), "{response}: {error}");
    }
}

#[test]
fn json_by_the_projects_own_rule() {
    for (response, expected) in [
        ("{\"thoughts\": \"4 + 8\", \"action\": \" + \"}", ok("+")),
        ("Sure:\n```json\n{\"action\": 10}\n```", ok("10")),
        ("{so} {\"action\": \"=\"} {\"action\": \"+\"}", ok("=")),
        ("{\"thoughts\": \"{\"}", bad("")),
        ("{\"action\": \"\"}", bad("")),
        ("{\"action\": [\"+\"]}", bad("")),
        ("I say +", bad("I say +")),
        ("{\"action\": \"+\"", bad("{\"action\": \"+\"")),
        ("<think>{\"action\": \"4\"}</think>{\"action\": \"+\"}", ok("+")),
        ("<think>{\"action\": 4}", bad("<think>{\"action\": 4}")),
    ] {
        assert_eq!(parse(&ResponseRules::new(Style::Json), response), expected, "{response}");
    }
}

#[test]
fn verl_agents_quirks_with_json() {
    let actions = crate::ezpoints::game::ACTIONS.map(str::to_owned);
    let parser =
        ActionParser::new(ResponseRules { blocks: Blocks::Any, ..ResponseRules::new(Style::Json) }, false);
    for (response, action) in [
        ("{\"thoughts\": \"4 + 8\", \"action\": \"+\"}", Some("+")),
        ("{\"Action\": \"10\"}", Some("10")),
        ("\"action\": 10 10", Some("10")),
        // `10` is removed before `1` is matched.
        ("\"action\": \"101\"", None),
        ("\"action\": \"4+\"", None),
        ("\"action\": \"stop\"", None),
        ("{\"action\": \"4\", \"thoughts\": \"4*\"}", None),
        ("{\"action\": \"4\", \"thoughts\": \"4\"}", Some("4")),
        ("I say 4 + 8 =", Some("=")),
        ("{'action': '='}", None),
        ("10", None),
        ("take 1", Some("1")),
        ("", None),
    ] {
        let parsed = parser.parse(response, &actions);
        assert_eq!(
            (parsed.valid, parsed.action.as_str()),
            (action.is_some(), action.unwrap_or("")),
            "{response}"
        );
    }
}
