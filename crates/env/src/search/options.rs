//! Parses multiple-choice options of existing datasets.
//!
//! | data set | options | right option |
//! |---|---|---|
//! | MedQA | `options`, an object keyed by label | `answer_idx`, a label |
//! | MedXpertQA | `options`, repeated in the question after `Answer Choices:` | `label`, a label |
//! | MedMCQA | `opa` to `opd` | `cop`, a number |
//! | MMLU | `choices`, a list | `answer`, a number from 0 |
//! | MMLU-Pro | `options`, a list | `answer_index`, a number from 0 |
//! | AlphaMed19K | in the question (`A: .. B: ..`) | `answer`, a label |

use serde_json::{Map, Value};

use super::choice::Choices;
use super::records::{CountedFrom, text_of};

const LABELS: [&str; 26] = [
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T", "U",
    "V", "W", "X", "Y", "Z",
];

const ANSWER_CHOICES: &str = "Answer Choices:";

pub(super) struct Asked<'a> {
    pub(super) text: &'a str,
    pub(super) choices: Option<Choices>,
}

pub(super) fn asked<'a>(
    record: &Map<String, Value>,
    text: &'a str,
    counted: CountedFrom,
) -> Result<Asked<'a>, String> {
    if let Some(options) = record.get("options").filter(|options| options.is_object()) {
        let Some((key, right)) = present(record, &["answer_idx", "label"]) else {
            return Ok(Asked { text, choices: None });
        };
        let repeated = text.rfind(ANSWER_CHOICES).filter(|_| key == "label");
        let stem = repeated.map_or(text, |at| text[..at].trim_end());
        return Ok(Asked { text: stem, choices: Some(by_label(options, key, right)?) });
    }
    for (options, right) in [("options", "answer_index"), ("choices", "answer")] {
        if let (Some(Value::Array(list)), Some(place)) = (record.get(options), record.get(right))
            && (place.is_number() || place.is_null())
        {
            return Ok(Asked { text, choices: Some(by_place(list, (options, right), place)?) });
        }
    }
    if let Some(choices) = of_medmcqa(record, counted)? {
        return Ok(Asked { text, choices: Some(choices) });
    }
    in_text(record, text)
}

fn present<'a>(record: &'a Map<String, Value>, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
    keys.iter().find_map(|key| Some((*key, record.get(*key).filter(|value| !value.is_null())?)))
}

/// Parses options keyed by label. Null options are skipped, because each row of a table has columns
/// for all labels.
fn by_label(options: &Value, key: &str, right: &Value) -> Result<Choices, String> {
    let options = options.as_object().into_iter().flatten().filter(|(_, text)| !text.is_null());
    let option = |(label, text): (&String, &Value)| {
        let text = text_of(text).ok_or_else(|| format!("`options` has no text for {label:?}: {text}"))?;
        Ok((label.clone(), text.trim().to_owned()))
    };
    let mut options = options.map(option).collect::<Result<Vec<(String, String)>, String>>()?;
    options.sort();
    let right = right.as_str().unwrap_or_default();
    let place = options.iter().position(|(label, _)| label == right);
    let place = place.ok_or_else(|| format!("`{key}` is {right:?}, which is none of `options`"))?;
    Ok(Choices { options, right: place })
}

fn by_place(list: &[Value], (key, answer): (&str, &str), right: &Value) -> Result<Choices, String> {
    if list.len() > LABELS.len() {
        return Err(format!("`{key}` has {} options; {} can be labelled", list.len(), LABELS.len()));
    }
    let option = |(label, text): (&&str, &Value)| {
        let text = text_of(text).ok_or_else(|| format!("`{key}` has no text for {label:?}: {text}"))?;
        Ok(((*label).to_owned(), text.trim().to_owned()))
    };
    let options = LABELS.iter().zip(list).map(option).collect::<Result<Vec<_>, String>>()?;
    let place = right.as_u64().and_then(|place| usize::try_from(place).ok());
    let place = place.filter(|place| *place < options.len()).ok_or_else(|| {
        format!("`{answer}` is {right}, and `{key}` has {} options, counted from 0", options.len())
    })?;
    Ok(Choices { options, right: place })
}

fn of_medmcqa(record: &Map<String, Value>, counted: CountedFrom) -> Result<Option<Choices>, String> {
    let letters = [("opa", "A"), ("opb", "B"), ("opc", "C"), ("opd", "D")];
    let options: Option<Vec<(String, String)>> = letters
        .iter()
        .map(|(key, label)| Some(((*label).to_owned(), record.get(*key)?.as_str()?.trim().to_owned())))
        .collect();
    let (Some(options), Some(right)) = (options, record.get("cop")) else { return Ok(None) };
    let place = right.as_i64().map(|right| match counted {
        CountedFrom::Zero => right,
        CountedFrom::One => right - 1,
    });
    let place = place.and_then(|place| usize::try_from(place).ok()).filter(|place| *place < options.len());
    let place = place.ok_or_else(|| {
        format!("`cop` is {right}, which is none of the four options; a test split has no answers")
    })?;
    Ok(Some(Choices { options, right: place }))
}

/// Parses AlphaMed19K's options (`A: ..`, `B: ..`), which are part of the question. A record
/// without `subset_name` has options only if its `answer` is a label such as `A`.
fn in_text<'a>(record: &Map<String, Value>, text: &'a str) -> Result<Asked<'a>, String> {
    let right = record.get("answer").and_then(Value::as_str).map(str::trim);
    let labelled = right.is_some_and(|right| LABELS.contains(&right));
    let known = record.contains_key("subset_name");
    let (stem, options) = if labelled || known { lettered(text) } else { (text, Vec::new()) };
    let right = right.unwrap_or_default();
    let place = options.iter().position(|(label, _)| label == right);
    match place {
        Some(place) => Ok(Asked { text: stem, choices: Some(Choices { options, right: place }) }),
        None if known => {
            let labels: Vec<&str> = options.iter().map(|(label, _)| label.as_str()).collect();
            Err(format!(
                "`answer` is {right:?}, and the question has the options {labels:?}; they are written `A: ..`, `B: ..`"
            ))
        }
        None => Ok(Asked { text, choices: None }),
    }
}

fn markers<'a>(text: &'a str, label: &'a str, from: usize) -> impl Iterator<Item = usize> + 'a {
    let found = text[from..].match_indices(label).map(move |(at, _)| from + at);
    found.filter(move |&at| {
        let before = text[..at].chars().next_back();
        text[at + 1..].starts_with(':') && before.is_none_or(char::is_whitespace)
    })
}

/// Splits a question from its options at the last `A:` that precedes the last `B:`, because the
/// question itself may contain `vitamin A:`.
fn lettered(text: &str) -> (&str, Vec<(String, String)>) {
    let first = markers(text, "B", 0)
        .last()
        .and_then(|second| markers(text, "A", 0).take_while(|at| *at < second).last());
    let Some(first) = first else { return (text, Vec::new()) };
    let mut places = vec![first];
    for label in &LABELS[1..] {
        let Some(at) = markers(text, label, places[places.len() - 1] + 2).next() else { break };
        places.push(at);
    }
    let ends = places.iter().skip(1).copied().chain([text.len()]);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let option =
        |((label, at), end): ((&&str, &usize), usize)| ((*label).to_owned(), words(&text[at + 2..end]));
    (text[..first].trim_end(), LABELS.iter().zip(&places).zip(ends).map(option).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(record: &Value) -> Result<(String, Option<Choices>), String> {
        let text = record["question"].as_str().unwrap();
        let found = asked(record.as_object().unwrap(), text, CountedFrom::Zero)?;
        Ok((found.text.to_owned(), found.choices))
    }

    fn chosen(record: &Value) -> (String, Vec<String>, String) {
        let (text, choices) = read(record).unwrap();
        let Choices { options, right } = choices.unwrap();
        let right = options[right].0.clone();
        (text, options.into_iter().map(|(label, text)| format!("{label}={text}")).collect(), right)
    }

    #[test]
    fn every_layout_is_read() {
        let mmlu = json!({"question": "Which bone?", "subject": "anatomy", "choices": ["ulna", "tibia", 3], "answer": 1});
        let pro = json!({"question": "Which bone?", "options": ["ulna", "tibia"], "answer": "B", "answer_index": 1, "category": "health"});
        let expert = json!({"id": "Text-0", "question": "Which bone?\nAnswer Choices: (A) ulna (B) tibia", "options": {"B": "tibia", "A": "ulna"}, "label": "B"});
        let alpha = json!({"question": "With vitamin A: given, which bone?\nA: ulna, E: no\nB:  tibia\n or fibula", "answer": "B", "subset_name": "medqa"});
        let text = || "Which bone?".to_owned();
        let (two, right) = (vec!["A=ulna".to_owned(), "B=tibia".to_owned()], "B".to_owned());
        assert_eq!(chosen(&pro), (text(), two.clone(), right.clone()));
        assert_eq!(chosen(&expert), (text(), two.clone(), right.clone()));
        let three = [two.clone(), vec!["C=3".to_owned()]].concat();
        assert_eq!(chosen(&mmlu), (text(), three, right.clone()));
        let (stem, options, label) = chosen(&alpha);
        assert_eq!(stem, "With vitamin A: given, which bone?");
        assert_eq!((options, label), (vec!["A=ulna, E: no".into(), "B=tibia or fibula".into()], right));
        let table = json!({"question": "q", "options": {"A": "x", "B": "y", "C": null}, "answer_idx": "A"});
        assert_eq!(chosen(&table).1.len(), 2);
        let open = json!({"question": "Which blood group is it?", "answer": "A"});
        assert_eq!(read(&open).unwrap(), ("Which blood group is it?".to_owned(), None));
    }

    #[test]
    fn options_that_cannot_be_read_say_why() {
        let many: Vec<String> = (0..27).map(|number| number.to_string()).collect();
        for (record, expected) in [
            (
                json!({"question": "q", "choices": ["a", "b"], "answer": 2}),
                "`answer` is 2, and `choices` has 2 options",
            ),
            (json!({"question": "q", "choices": ["a", "b"], "answer": -1}), "`answer` is -1"),
            (json!({"question": "q", "choices": [], "answer": 0}), "`choices` has 0 options"),
            (json!({"question": "q", "choices": ["a", {"x": 1}], "answer": 0}), "no text for \"B\""),
            (json!({"question": "q", "choices": many, "answer": 0}), "`choices` has 27 options; 26"),
            (json!({"question": "q", "options": ["a"], "answer_index": null}), "`answer_index` is null"),
            (
                json!({"question": "q", "options": {"A": "x"}, "label": "K"}),
                "`label` is \"K\", which is none",
            ),
            (json!({"question": "q", "options": {"A": "x"}, "label": 0}), "`label` is \"\""),
            (json!({"question": "q", "answer": "A", "subset_name": "x"}), "the question has the options []"),
            (json!({"question": "q A: x B: y", "answer": "C", "subset_name": "x"}), "`answer` is \"C\""),
            (json!({"question": "q A: x B: y", "subset_name": "x"}), "`answer` is \"\""),
        ] {
            let reason = read(&record).unwrap_err();
            assert!(reason.contains(expected), "{record}: {reason}");
        }
    }

    #[test]
    fn texts_of_any_letters_are_split_or_left_alone() {
        let labels = |text: &str| lettered(text).1.into_iter().map(|(label, _)| label).collect::<String>();
        assert_eq!(labels("A:B:"), "");
        assert_eq!(labels("A: B:"), "AB");
        assert_eq!(labels("ä\u{a0}A: é B: ü C:"), "ABC");
        assert_eq!(labels("B: x A: y"), "");
        assert_eq!(labels(&"A: ".repeat(1000)), "");
        let long = LABELS.map(|label| format!("{label}: x")).join(" ");
        assert_eq!(labels(&format!("{long} {long}")).len(), 26);
    }
}
