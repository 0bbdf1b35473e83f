//! Cuts observations to their token limit and converts them to tool results.

use turnwise_core::{Observation, Part, Task, ToolCall};
use turnwise_text::Tokenizer;
use turnwise_text::chat::Answered;

pub(super) fn shorten(mut observation: Observation, task: &Task, tokenizer: &Tokenizer) -> Observation {
    let Some(mut room) = task.limits.observation_tokens else { return observation };
    for part in &mut observation.parts {
        let (Part::Text { text } | Part::ToolResult { text, .. } | Part::Message { text, .. }) = part else {
            continue;
        };
        let tokens = tokenizer.encode(text);
        if tokens.len() > room {
            *text = whole_text(tokenizer, &tokens[..room]);
        }
        room = room.saturating_sub(tokens.len());
    }
    observation
}

/// Turns the text parts of an observation into one result of `call`. If a part is already a result
/// of this call, returns the parts unchanged.
pub(super) fn as_result(parts: Vec<Part>, call: &ToolCall) -> Vec<Part> {
    let named = |part: &Part| matches!(part, Part::ToolResult { call_id, .. } if *call_id == call.id);
    if parts.iter().any(named) {
        return parts;
    }
    let seen = Observation { parts, ..Observation::default() };
    let text = seen.text().into_owned();
    let rest = seen.parts.into_iter().filter(|part| part.text().is_none());
    std::iter::once(Part::ToolResult { call_id: call.id.clone(), text }).chain(rest).collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results<'a> {
    /// Answered calls with their results.
    pub answered: Vec<Answered<'a>>,
    /// Text that answers no call.
    pub said: String,
}

impl<'a> Results<'a> {
    /// Returns the results of `calls` in an observation, if any.
    pub fn of(observation: &'a Observation, calls: &'a [ToolCall]) -> Self {
        let mut results = Self::default();
        for part in &observation.parts {
            match part {
                Part::ToolResult { call_id, text } => {
                    let name = calls.iter().find(|call| call.id == *call_id).map_or("", |call| &call.name);
                    results.answered.push(Answered { id: call_id, name, text });
                }
                part => {
                    let text = part.text().unwrap_or_default();
                    if !results.said.is_empty() && !text.is_empty() {
                        results.said.push('\n');
                    }
                    results.said.push_str(text);
                }
            }
        }
        results
    }
}

fn whole_text(tokenizer: &Tokenizer, mut tokens: &[u32]) -> String {
    let is_cut = |tokens: &[u32]| {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
        let rest = bytes.utf8_chunks().last().map_or(b"".as_slice(), |chunk| chunk.invalid());
        // An error without a length is an incomplete character.
        std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none())
    };
    while let Some((_, before)) = tokens.split_last().filter(|_| is_cut(tokens)) {
        tokens = before;
    }
    tokenizer.decode(tokens)
}

#[cfg(test)]
mod tests {
    use turnwise_core::ImageHandle;
    use turnwise_text::TokenizerConfig;

    use super::*;

    #[test]
    fn a_cut_text_ends_with_a_whole_character() {
        let tokenizer = Tokenizer::train(std::iter::empty(), &TokenizerConfig::default()).unwrap();
        let ids = tokenizer.encode("né日🦙\u{fffd}x");
        let cut = |room: usize| whole_text(&tokenizer, &ids[..room]);
        let expected = ["", "n", "n", "né", "né", "né", "né日", "né日", "né日", "né日", "né日🦙"];
        let found: Vec<String> = (0..expected.len()).map(cut).collect();
        assert_eq!(found, expected);
        assert_eq!(cut(13), "né日🦙\u{fffd}");
        assert_eq!(cut(ids.len()), "né日🦙\u{fffd}x");
        let broken = [&tokenizer.encode("é")[1..], &tokenizer.encode("né")[..2]].concat();
        assert_eq!(whole_text(&tokenizer, &broken), "\u{fffd}n");
    }

    #[test]
    fn an_observation_is_the_result_of_the_call_before_it() {
        let call = |id: &str| ToolCall { id: id.into(), name: "f".into(), ..ToolCall::default() };
        let image = Part::Image(ImageHandle { sha256: "00".into(), media_type: "image/png".into() });
        let mut seen = Observation::new("one");
        seen.parts.push(image.clone());
        let result = |id: &str, text: &str| Part::ToolResult { call_id: id.into(), text: text.into() };
        assert_eq!(as_result(seen.parts, &call("a")), [result("a", "one"), image]);
        let parts =
            vec![result("b", "two"), Part::Text { text: "and".into() }, Part::Text { text: "more".into() }];
        let mut seen = Observation { parts: parts.clone(), ..Observation::default() };
        assert_eq!(as_result(seen.parts.clone(), &call("b")), parts);
        seen.parts.insert(0, result("a", "one"));
        let calls = [call("a"), call("b")];
        let results = Results::of(&seen, &calls);
        let answered = |id, text| Answered { id, name: "f", text };
        assert_eq!(results.answered, [answered("a", "one"), answered("b", "two")]);
        assert_eq!(results.said, "and\nmore");
        assert_eq!(Results::of(&Observation::new("words"), &[]).answered, []);
    }
}
