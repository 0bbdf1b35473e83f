//! Splits conversations that were decoded without special tokens.

use crate::chat::Message;

/// Headings of speakers other than the policy. In Llama's template, `ipython` marks tools.
const OTHERS: [&str; 3] = ["user", "tool", "ipython"];

const POLICY: [&str; 1] = ["assistant"];

/// Form of the headings in a conversation that was decoded without special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headings {
    /// Each heading is a separate line, as in ChatML: `go north`, `user`, `A wall.`
    Lines,
    /// Each heading directly follows the previous message and precedes a blank line, as in Llama 3:
    /// `go northuser`, blank line, `A wall.`
    Glued,
}

impl Headings {
    /// Detects the form of the headings from the end of a prompt. By default, each heading is a
    /// separate line.
    pub(crate) fn of(prompt: &str) -> Self {
        let before =
            without_thought(prompt).trim_end_matches('\n').strip_suffix(POLICY[0]).unwrap_or_default();
        let blank = prompt.contains("assistant\n\n");
        if blank
            && before.ends_with(|last| ends_a_message(last) && last != '\n')
            && !before.ends_with("|im_start|>")
        {
            Self::Glued
        } else {
            Self::Lines
        }
    }
}

fn without_thought(prompt: &str) -> &str {
    let end = prompt.trim_end();
    let closed = end.strip_suffix("</think>").map_or(end, str::trim_end);
    closed.strip_suffix("<think>").map_or(prompt, str::trim_end)
}

/// Returns true if a heading may directly follow this character. After a space or hyphen, `user` is
/// an ordinary word.
fn ends_a_message(last: char) -> bool {
    last == '\n' || !(last.is_whitespace() || matches!(last, '-' | '_' | '/' | '\''))
}

/// Returns whether a line is the policy's heading or another speaker's; `None` if it is not a
/// heading.
fn heading(line: &str) -> Option<bool> {
    match line.trim_end().trim_start_matches("<|im_start|>") {
        "assistant" => Some(true),
        "user" | "tool" => Some(false),
        _ => None,
    }
}

fn glued_heading(text: &str, names: &[&str]) -> Option<(usize, usize)> {
    let ends = |name: &str, at: usize| {
        let rest = &text[at + name.len()..];
        let blank = if rest.starts_with("\n\n") { Some(2) } else { None };
        // The last policy heading may be cut off.
        let cut = name == POLICY[0] && rest.bytes().all(|byte| byte == b'\n');
        let blank = blank.or_else(|| cut.then_some(rest.len()))?;
        text[..at].chars().next_back().is_none_or(ends_a_message).then_some((at, at + name.len() + blank))
    };
    names.iter().filter_map(|name| text.match_indices(name).find_map(|(at, _)| ends(name, at))).min()
}

/// Splits decoded text into messages, the first one from the policy. `user` and `tool` start an
/// environment message, `assistant` a policy message. An empty policy message at the end is
/// dropped.
pub(crate) fn split(text: &str, headings: Headings) -> Vec<Message> {
    let mut parts: Vec<(bool, String)> = vec![(true, String::new())];
    match headings {
        Headings::Lines => {
            for line in text.split_inclusive('\n') {
                let last = parts.len() - 1;
                match heading(line.trim_end_matches('\n')) {
                    Some(speaker) if speaker != parts[last].0 => parts.push((speaker, String::new())),
                    _ => parts[last].1.push_str(line),
                }
            }
        }
        Headings::Glued => {
            let (mut rest, mut sampled) = (text, true);
            while let Some((at, end)) = glued_heading(rest, if sampled { &OTHERS } else { &POLICY }) {
                if let Some(last) = parts.last_mut() {
                    last.1.push_str(&rest[..at]);
                }
                rest = &rest[end..];
                sampled = !sampled;
                parts.push((sampled, String::new()));
            }
            if let Some(last) = parts.last_mut() {
                last.1.push_str(rest);
            }
        }
    }
    let mut messages: Vec<Message> = parts
        .into_iter()
        .map(|(sampled, text)| {
            let text = text.trim_end().trim_end_matches("<|im_end|>").trim();
            if sampled { Message::written(text) } else { Message::given(text.to_owned()) }
        })
        .collect();
    if messages.len() > 1 && messages.last().is_some_and(|last| last.sampled && last.text.is_empty()) {
        messages.pop();
    }
    messages
}

/// Returns the last message of a prompt, taken to be the task.
pub(crate) fn last_prompt(text: &str) -> &str {
    let mut end = without_thought(text).trim_end();
    if Headings::of(text) == Headings::Glued {
        end = end.strip_suffix(POLICY[0]).unwrap_or(end);
        while let Some((_, after)) = glued_heading(end, &["user"]).filter(|(_, after)| *after < end.len()) {
            end = &end[after..];
        }
        return end.trim();
    }
    for heading in ["<|im_start|>assistant", "\nassistant"] {
        end = end.strip_suffix(heading).unwrap_or(end).trim_end();
    }
    let end = end.trim_end_matches("<|im_end|>");
    let begins = end.starts_with("user\n").then_some("user\n".len());
    let marks = ["\nuser\n", "<|im_start|>user\n"];
    let start = marks.iter().filter_map(|mark| Some(end.rfind(mark)? + mark.len())).chain(begins).max();
    start.map_or(end, |start| &end[start..]).trim()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::chat;

    #[test]
    fn a_decoded_conversation_is_split_at_its_headings() {
        let text = "<think>where?</think>\ngo north\nuser\nA wall.\nassistant\ngo south\n";
        let parts = split(text, Headings::Lines);
        let plain: Vec<(bool, &str, &str)> =
            parts.iter().map(|part| (part.sampled, part.text.as_str(), part.action.as_str())).collect();
        assert_eq!(
            plain,
            [
                (true, "<think>where?</think>\ngo north", "go north"),
                (false, "A wall.", ""),
                (true, "go south", "go south"),
            ]
        );
        let marked = "a<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\nc<|im_end|>";
        let texts: Vec<String> = split(marked, Headings::Lines).into_iter().map(|part| part.text).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        assert_eq!(split("the user\nasked the assistant", Headings::Lines).len(), 1);
        assert_eq!(last_prompt("system\nBe kind.\nuser\nFind it.\nassistant\n"), "Find it.");
    }

    #[test]
    fn a_heading_without_a_word_is_no_turn() {
        for end in ["assistant\n", "assistant", "<|im_start|>assistant\n", "assistant\n<|im_end|>\n"] {
            let messages = split(&format!("do a\nuser\nobs\n{end}"), Headings::Lines);
            let record = chat::record(1, 0, String::new(), Value::Null, String::new(), messages, 1.0, None);
            let turns = &record.trajectory.turns;
            assert_eq!((turns.len(), record.turns.len()), (1, 1), "{end:?}");
            assert_eq!((turns[0].action.as_str(), turns[0].reward), ("do a", 1.0), "{end:?}");
            assert_eq!(record.trajectory.final_observation, "obs", "{end:?}");
        }
        assert_eq!(split("", Headings::Lines), [Message::written("")]);
    }

    fn said(text: &str, headings: Headings) -> Vec<(bool, String)> {
        split(text, headings).into_iter().map(|message| (message.sampled, message.text)).collect()
    }

    #[test]
    fn headings_of_llama_stand_at_the_end_of_a_message() {
        // Decoded by `transformers` from Llama 3's template.
        let prompt = "system\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nuser\n\nFind it.assistant\n\n";
        assert_eq!(Headings::of(prompt), Headings::Glued);
        assert_eq!(last_prompt(prompt), "Find it.");
        let text = "go northuser\n\nA wall.assistant\n\ngo southipython\n\n{\"at\": 1}assistant\n\nopen box";
        let expected = [
            (true, "go north"),
            (false, "A wall."),
            (true, "go south"),
            (false, "{\"at\": 1}"),
            (true, "open box"),
        ];
        assert_eq!(said(text, Headings::Glued), expected.map(|(sampled, text)| (sampled, text.to_owned())));
        // Neither a word in a sentence nor the current speaker's heading counts.
        let sentence = "I ask the user\n\nand the end-user\n\nand myassistant\n\nthen go";
        assert_eq!(said(sentence, Headings::Glued), [(true, sentence.to_owned())]);
        assert_eq!(said("be the superuser", Headings::Glued), [(true, "be the superuser".to_owned())]);
        for end in ["assistant\n\n", "assistant\n", "assistant"] {
            let expected = [(true, "go".to_owned()), (false, "A wall.".to_owned())];
            assert_eq!(said(&format!("gouser\n\nA wall.{end}"), Headings::Glued), expected);
        }
    }

    #[test]
    fn the_form_is_that_of_the_prompts_end() {
        for lines in [
            "system\nBe kind.\nuser\nFind it.\nassistant\n",
            "<|im_start|>user\nFind it.<|im_end|>\n<|im_start|>assistant\n\n",
            "Find it.\nassistant\n\n",
            "You are an assistant\n\n",
            "Find it.",
            "",
        ] {
            assert_eq!(Headings::of(lines), Headings::Lines, "{lines}");
        }
    }

    #[test]
    fn the_goal_is_the_users_last_word() {
        for prompt in [
            "system\nBe kind.\nuser\nFind it.\nassistant\n",
            "system\nBe kind.\nuser\nFind it.\nassistant\n<think>\n",
            "user\nFind it.\nassistant\n<think>\n\n</think>\n\n",
            "user\nFind it.\nassistant\n",
            "user\nHello.\nassistant\nHello.\nuser\nFind it.\nassistant\n",
            "<|im_start|>user\nFind it.<|im_end|>\n<|im_start|>assistant\n<think>\n",
            "user\n\nHello.assistant\n\nHello.user\n\nFind it.assistant\n\n",
            "user\n\nFind it.assistant\n\n<think>\n",
            "Find it.",
        ] {
            assert_eq!(last_prompt(prompt), "Find it.", "{prompt}");
        }
    }
}
