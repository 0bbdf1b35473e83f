//! Converts instructions to the first person (`You are Ann` to `I am Ann`).

/// Pairs of a second-person word and its first-person form. `you` is not included, because it
/// becomes `I` or `me` depending on the words around it.
const WORDS: [(&str, &str); 12] = [
    ("your", "my"),
    ("yours", "mine"),
    ("yourself", "myself"),
    ("you're", "I'm"),
    ("you\u{2019}re", "I'm"),
    ("you'd", "I'd"),
    ("you\u{2019}d", "I'd"),
    ("you've", "I've"),
    ("you\u{2019}ve", "I've"),
    ("you'll", "I'll"),
    ("you\u{2019}ll", "I'll"),
    ("yourselves", "ourselves"),
];

/// Words after which `you` is an object and becomes `me`.
const BEFORE_OBJECT: [&str; 24] = [
    "to", "for", "with", "from", "of", "at", "by", "about", "on", "give", "gives", "gave", "tell", "tells",
    "ask", "asks", "asked", "help", "helps", "offer", "offers", "let", "lets", "show",
];

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '\'' | '\u{2019}')
}

fn cased(text: &str, like: &str) -> String {
    let mut letters = text.chars();
    match (like.chars().next(), letters.next()) {
        (Some(first), Some(letter)) if first.is_uppercase() => letter.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

pub(super) fn first_person(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let (mut before, mut follows_i) = (String::new(), false);
    while let Some(first) = rest.chars().next() {
        if !is_word(first) {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            if !first.is_whitespace() {
                (before, follows_i) = (String::new(), false);
            }
            continue;
        }
        let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let lower = word.to_lowercase();
        let next: String = after.trim_start().chars().take_while(|character| is_word(*character)).collect();
        let is_i = lower == "you" && !next.is_empty() && !BEFORE_OBJECT.contains(&before.as_str());
        let said = match lower.as_str() {
            "you" if is_i => "I".to_owned(),
            "you" => cased("me", word),
            "are" if follows_i => cased("am", word),
            "were" if follows_i => cased("was", word),
            "aren't" if follows_i => "am not".to_owned(),
            _ => WORDS
                .iter()
                .find(|(second, _)| *second == lower)
                .map_or_else(|| word.to_owned(), |(_, first)| cased(first, word)),
        };
        out.push_str(&said);
        rest = after;
        (before, follows_i) = (lower, is_i);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn you_becomes_i_or_me() {
        for (text, expected) in [
            ("You are Ann, and you want your order.", "I am Ann, and I want my order."),
            ("If the agent asks you, say no to it.", "If the agent asks me, say no to it."),
            ("They gave you two. You were there.", "They gave me two. I was there."),
            ("you're sure it is yours", "I'm sure it is mine"),
            ("Your #W1 is for you alone", "My #W1 is for me alone"),
            ("", ""),
        ] {
            assert_eq!(first_person(text), expected);
        }
    }
}
