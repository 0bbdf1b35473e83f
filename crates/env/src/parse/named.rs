//! Blocks whose tag names the kind of action, such as `<search>..</search>`.

use turnwise_core::Reasoning;

use super::rules::{Blocks, ReasoningDemand, ResponseRules};
use super::{Read, after_reasoning};
use crate::python::strip;

pub(super) fn read(rules: &ResponseRules, response: &str) -> Read {
    let names = &rules.action_names;
    match rules.blocks {
        Blocks::One => one(rules, response),
        Blocks::Any => {
            let cut = cut(response, names);
            let lower = cut.to_ascii_lowercase();
            let found = names.iter().find_map(|name| {
                let start = lower.find(&opening(name))? + name.len() + 2;
                let end = start + lower[start..].find(&closing(name))?;
                Some(block(name, &cut[start..end]))
            });
            let Some(action) = found else { return (rules.tail(response), Some(NO_BLOCK)) };
            let response = response.to_ascii_lowercase();
            let opened: usize = names.iter().map(|name| response.matches(&opening(name)).count()).sum();
            (action, (opened > 1).then_some(SEVERAL))
        }
        Blocks::First => match first(cut(response, names), names) {
            Some((action, _)) => (action, None),
            None => (rules.tail(response), Some(NO_BLOCK)),
        },
    }
}

const NO_BLOCK: &str = "there is no block with an action";
const SEVERAL: &str = "there is more than one block with an action";

pub(super) fn inside<'a>(action: &'a str, name: &str) -> Option<&'a str> {
    action.strip_prefix(&opening(name))?.strip_suffix(&closing(name))
}

fn opening(name: &str) -> String {
    format!("<{name}>")
}

fn closing(name: &str) -> String {
    format!("</{name}>")
}

fn block(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", strip(text))
}

/// Truncates the response after the first closing tag of one name: the first of `names` whose
/// closing tag occurs.
fn cut<'a>(response: &'a str, names: &[String]) -> &'a str {
    let end = names.iter().find_map(|name| {
        let tag = closing(name);
        Some(response.find(&tag)? + tag.len())
    });
    end.map_or(response, |end| &response[..end])
}

/// Returns the block that starts first, and the text after it.
fn first<'a>(text: &'a str, names: &[String]) -> Option<(String, &'a str)> {
    let blocks = names.iter().filter_map(|name| {
        let start = text.find(&opening(name))?;
        let inside = &text[start + name.len() + 2..];
        let (inside, after) = inside.split_once(&closing(name))?;
        Some((start, block(name, inside), after))
    });
    blocks.min_by_key(|(start, ..)| *start).map(|(_, block, after)| (block, after))
}

fn one(rules: &ResponseRules, response: &str) -> Read {
    let names = &rules.action_names;
    let (reasoning, answer) = match after_reasoning(rules, response) {
        Ok(found) => found,
        Err(unclosed) => return unclosed,
    };
    let Some((action, after)) = first(answer, names) else { return (rules.tail(response), Some(NO_BLOCK)) };
    let tags =
        |text: &str| names.iter().any(|name| text.contains(&opening(name)) || text.contains(&closing(name)));
    let empty = names.iter().any(|name| inside(&action, name).is_some_and(str::is_empty));
    let nested = names.iter().filter_map(|name| inside(&action, name)).any(tags);
    let reason = if empty {
        Some("the block of the action is empty")
    } else if nested || tags(after) {
        Some(SEVERAL)
    } else if rules.reasoning == ReasoningDemand::Required && matches!(reasoning, Reasoning::None(_)) {
        Some("there is no reasoning before the action")
    } else {
        None
    };
    (action, reason)
}

#[cfg(test)]
mod tests {
    use super::super::{ActionParser, Blocks, ReasoningDemand, ResponseRules, Style};

    fn parse(blocks: Blocks, response: &str) -> (String, bool) {
        let rules = ResponseRules { blocks, tail: 0, ..ResponseRules::new(Style::Named) };
        let parsed = ActionParser::new(rules, false).parse(response, &[]);
        (parsed.action, parsed.valid)
    }

    fn is(text: &str, valid: bool) -> (String, bool) {
        (text.to_owned(), valid)
    }

    #[test]
    fn verl_agent_takes_a_search_before_an_answer_and_counts_opening_tags() {
        // From verl-agent's search_projection.
        for (response, read) in [
            ("<think>so</think><search> who </search>", is("<search>who</search>", true)),
            ("<answer>\nAda\n</answer>", is("<answer>Ada</answer>", true)),
            ("<ANSWER>Ada</ANSWER>", is("<answer>Ada</answer>", true)),
            ("<answer>Ada</answer><search>who</search>", is("<search>who</search>", false)),
            ("<search>who</search><answer>Ada</answer>", is("<search>who</search>", false)),
            ("<search>a</search><search>b</search>", is("<search>a</search>", false)),
            ("I may <search> or <search>b</search>", is("<search>or <search>b</search>", false)),
            ("<answer>Ada</answer> or <search>who", is("<answer>Ada</answer>", false)),
            ("Ada", is("", false)),
            ("", is("", false)),
            ("<search></search>", is("<search></search>", true)),
        ] {
            assert_eq!(parse(Blocks::Any, response), read, "{response}");
        }
    }

    #[test]
    fn search_r1_takes_the_block_that_begins_first() {
        // From Search-R1's _postprocess_responses and postprocess_predictions.
        for (response, read) in [
            ("<think>so</think><search> who </search>", is("<search>who</search>", true)),
            ("<answer>Ada</answer><search>who</search>", is("<answer>Ada</answer>", true)),
            ("<answer>Ada<search>who</search></answer>", is("<search>who</search>", true)),
            ("<search>a<answer>b</answer>", is("<answer>b</answer>", true)),
            ("<search>a</search><search>b</search>", is("<search>a</search>", true)),
            ("<SEARCH>a</SEARCH>", is("", false)),
            ("<search>a", is("", false)),
        ] {
            assert_eq!(parse(Blocks::First, response), read, "{response}");
        }
    }

    #[test]
    fn the_strict_rule_wants_one_block_after_the_reasoning() {
        for (response, read) in [
            ("<think><search>a</search></think><answer>b</answer>", is("<answer>b</answer>", true)),
            ("<search>a</search>", is("<search>a</search>", true)),
            ("<search>a</search> <answer>b</answer>", is("<search>a</search>", false)),
            ("<search>a <search>b</search>", is("<search>a <search>b</search>", false)),
            ("<search> </search>", is("<search></search>", false)),
            ("<think><answer>b</answer>", is("", false)),
            ("none", is("", false)),
        ] {
            assert_eq!(parse(Blocks::One, response), read, "{response}");
        }
        let rules =
            ResponseRules { reasoning: ReasoningDemand::Required, ..ResponseRules::new(Style::Named) };
        let parsed = ActionParser::new(rules, false).parse("<answer>b</answer>", &[]);
        assert_eq!(parsed.reason, Some("there is no reasoning before the action"));
    }

    #[test]
    fn a_listed_pattern_admits_blocks_of_its_name() {
        let listed = ["search[<your query>]".to_owned()];
        for (action, admitted) in [
            ("<search>a</search>", true),
            ("search[a]", true),
            ("<search> </search>", false),
            ("<answer>a</answer>", false),
        ] {
            assert_eq!(super::super::offered(&listed, action), admitted, "{action}");
        }
    }
}
