/// Phrases that a word-level tokenizer keeps as one token, longest first.
///
/// No phrase ends in a space, because the space belongs to the next token (` drawer 1`). Commands
/// are listed with and without a leading space.
pub const PHRASES: &[&str] = &[
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a",
    "You are in the middle of a room. Looking quickly around you, you see nothing.",
    " is open. In it, you see nothing.",
    ". Next to it, you see nothing.",
    "You are not carrying anything.",
    "There's nothing special about",
    " is open. In it, you see a",
    ". In it, you see nothing.",
    ". Next to it, you see a",
    "You are carrying: a",
    ", you see nothing.",
    ". In it, you see a",
    "You are facing the",
    "\n\nYour task is to:",
    " and put them in",
    "Nothing happens.",
    "This is a normal",
    "This is a sliced",
    "This is a clean",
    "You pick up the",
    "You turn on the",
    " and put it in",
    "This is a cold",
    "This is a cool",
    "You sliced the",
    "This is a hot",
    "You arrive at",
    "You clean the",
    "You close the",
    " examine the",
    " put a clean",
    "You cool the",
    "You heat the",
    "You move the",
    "You open the",
    " clean some",
    " is closed.",
    " put a cool",
    ", you see a",
    " cool some",
    " heat some",
    " put a hot",
    " under the",
    " using the",
    " find two",
    " from the",
    " put some",
    " with the",
    " look at",
    " put two",
    ". On the",
    " to the",
    ", and a",
    " go to",
    " put a",
    "On the",
    ". The",
    "go to",
    ", a",
    "The",
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use regex::Regex;
    use turnwise_core::Observation;

    use super::PHRASES;
    use crate::alfworld::Episode;
    use crate::alfworld::Prior;
    use crate::alfworld::expert::Expert;
    use crate::alfworld::generator::{GeneratorConfig, generate};

    fn cutter(phrases: &[&str]) -> Regex {
        let phrases: Vec<String> = phrases.iter().map(|phrase| regex::escape(phrase)).collect();
        let tail = r"\n| ?[a-z]+ [0-9]+| ?[A-Za-z']+| ?[0-9]+| ?[^\x09-\x0D\x20A-Za-z0-9]+|[\x09-\x0D\x20]";
        let parts: Vec<&str> = phrases.iter().map(String::as_str).chain([tail]).collect();
        Regex::new(&parts.join("|")).unwrap()
    }

    fn texts() -> Vec<String> {
        let config = GeneratorConfig { train: 300, valid_seen: 0, valid_unseen: 0, ..Default::default() };
        let set = generate(&config).unwrap();
        let mut texts = Vec::new();
        for game in set.iter() {
            let mut episode = Episode::new(Arc::clone(game));
            let mut expert = Expert::new(Prior::embedded().unwrap());
            expert.reset(episode.observation(), game.sentence());
            while !episode.won() && episode.steps() < 50 {
                texts.push(episode.observation().to_owned());
                let observation =
                    Observation::new(episode.observation()).with_admissible(episode.admissible());
                let action = expert.act(&observation);
                texts.push(format!(" {action}"));
                episode.step(&action);
            }
        }
        texts
    }

    #[test]
    fn phrases_are_longest_first_and_leave_the_blank_to_the_name() {
        assert!(PHRASES.windows(2).all(|pair| pair[0].len() >= pair[1].len()));
        assert!(PHRASES.iter().all(|phrase| !phrase.ends_with(' ') && !phrase.is_empty()));
        let mut sorted = PHRASES.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), PHRASES.len());
    }

    #[test]
    fn engine_texts_split_into_few_pieces() {
        let (with, without) = (cutter(PHRASES), cutter(&[]));
        let name = Regex::new(r"[a-z]+ [0-9]+").unwrap();
        let (mut pieces, mut plain, mut names) = (0, 0, 0);
        for text in texts() {
            let cut: Vec<&str> = with.find_iter(&text).map(|piece| piece.as_str()).collect();
            assert_eq!(cut.concat(), text);
            for found in name.find_iter(&text) {
                assert!(cut.iter().any(|piece| piece.trim_start() == found.as_str()), "{text}: {cut:?}");
            }
            pieces += cut.len();
            plain += without.find_iter(&text).count();
            names += name.find_iter(&text).count();
        }
        assert!(pieces < 5 * names / 2, "{pieces} pieces for {names} names");
        assert!(pieces * 3 < plain * 2, "{pieces} pieces with the phrases, {plain} without");
    }

    #[test]
    fn the_introduction_in_pieces() {
        let text = "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly \
                    around you, you see a bed 1, a drawer 2, and a safe 1.\n\nYour task is to: put a hot mug in safe.";
        let cutter = cutter(PHRASES);
        let cut: Vec<&str> = cutter.find_iter(text).map(|piece| piece.as_str()).collect();
        let rest =
            [" bed 1", ", a", " drawer 2", ", and a", " safe 1", ".", "\n\nYour task is to:", " put a hot"];
        assert_eq!(cut[1..9], rest);
        assert_eq!(cut[9..], [" mug", " in", " safe", "."]);
    }
}
