use super::format::ObservationFormat;

const TAGS: [&str; 4] = ["<search>", " </search>", "<answer>", " </answer>"];

const SENTENCES: [&str; 24] = [
    " was a ",
    ". She was born in",
    ". He was born in",
    ". Her mother was",
    ". His mother was",
    ". Her teacher was",
    ". His teacher was",
    ". She died in",
    ". He died in",
    " is a town in",
    ". It lies on the river",
    ". It was founded in",
    ". Its theatre was built by",
    ". It was finished in",
    ". It is set in",
    " was held in",
    ". It was won by",
    "Who was the ",
    "Where was ",
    "In which year was ",
    " of the theatre of",
    " born in the same town?",
    "On which river is ",
    "In which country is ",
];

/// Phrases that a word-level tokenizer keeps as one token.
pub(super) fn phrases(format: ObservationFormat, top_k: usize, generated: bool) -> Vec<String> {
    let mut phrases: Vec<String> = TAGS.map(str::to_owned).to_vec();
    match format {
        ObservationFormat::SearchR1 => {
            phrases.push("\n\n<information>Doc 1(Title: \"".to_owned());
            phrases.extend((2..=top_k).map(|number| format!(".\nDoc {number}(Title: \"")));
            phrases.extend(["\")", ".</information>\n\n"].map(str::to_owned));
        }
        ObservationFormat::VerlAgent => {
            phrases.push("<information>{\"result\": \"Doc 1: \\\"".to_owned());
            phrases.extend((2..=top_k).map(|number| format!(".\\nDoc {number}: \\\"")));
            phrases.extend(["\\\"\\n", ".\\n\"}</information>"].map(str::to_owned));
        }
    }
    if generated {
        phrases.extend(SENTENCES.map(|sentence| sentence.trim_end().to_owned()));
    }
    phrases
}
