//! Expert that shops by reading pages, for demonstrations and hints to human players.
//!
//! The expert searches for words of the instruction and opens affordable products in rank order. A
//! product whose title has none of the instruction's words is treated as ranked five places lower.
//! If a title lacks some of the words, the expert reads the product's features; if the features
//! lack some too, it tries the next product. Near the step limit, the expert buys the best product
//! seen.

use std::collections::{BTreeMap, BTreeSet};

use turnwise_core::Observation;

use super::environment::DEFAULT_MAX_STEPS;
use super::page::SEARCH;

const BUTTONS: [&str; 8] =
    ["back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "buy now"];

const FILLERS: &str = "a about after am an and are as be best broke buy by called can care choose comes described do feature \
    features find for friend from get give help i if in interested is it kind like look looking me must my need new of old \
    on one ones or order our out people please possible price search should show sister some that the them they thing to \
    want what which who will with would you";

const PAGES: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    query: String,
    words: BTreeSet<String>,
    values: Vec<String>,
    text: String,
    limit: Option<u32>,
    /// Whether the instruction is free-form, so that only the product's page shows which words are
    /// option values.
    loose: bool,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    page: usize,
    text: String,
    read: bool,
    /// Number of missing words, plus 10 per option value that the product lacks and 2 per unmet
    /// option name.
    missing: Option<usize>,
}

/// Expert that plays one episode.
#[derive(Clone, Debug)]
pub struct Expert {
    wish: Wish,
    max_steps: usize,
    steps: usize,
    page: usize,
    open: Option<String>,
    seen: BTreeMap<String, Seen>,
    settled: Option<String>,
    chosen: BTreeSet<String>,
}

impl Expert {
    /// Creates an expert for an instruction.
    pub fn new(instruction: &str) -> Self {
        Self {
            wish: Wish::read(instruction),
            max_steps: DEFAULT_MAX_STEPS,
            steps: 0,
            page: 0,
            open: None,
            seen: BTreeMap::new(),
            settled: None,
            chosen: BTreeSet::new(),
        }
    }

    /// Sets the step limit.
    pub fn with_max_steps(mut self, max_steps: usize) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// Returns the next action.
    pub fn act(&mut self, observation: &Observation) -> String {
        self.act_noisy(observation, &mut || false)
    }

    /// Like [`Expert::act`], but skips a requested option value if `option_drop_prob` returns true.
    pub(crate) fn act_noisy(
        &mut self,
        observation: &Observation,
        option_drop_prob: &mut dyn FnMut() -> bool,
    ) -> String {
        self.steps += 1;
        let can = |name: &str| observation.admissible.iter().any(|action| action == name);
        if can(SEARCH) {
            self.open = None;
            return format!("search[{}]", self.wish.query);
        }
        let text = observation.text();
        let parts = parts(&text);
        if can("click[buy now]") {
            return self.at_product(observation, &parts, option_drop_prob);
        }
        if let Some(number) = parts.iter().find_map(|part| page_number(part)) {
            self.page = number;
            self.open = None;
            self.chosen.clear();
            return self.at_results(&parts);
        }
        if let Some(seen) = self.open.as_ref().and_then(|open| self.seen.get_mut(open)) {
            seen.read = true;
            for part in parts.iter().skip(2) {
                seen.text.push(' ');
                seen.text.push_str(part);
            }
        }
        "click[< prev]".to_owned()
    }

    fn left(&self) -> usize {
        (self.max_steps + 1).saturating_sub(self.steps)
    }

    fn cost(&self) -> usize {
        // Free-form instructions are assumed to have two option values.
        let values = if self.wish.values.is_empty() && self.wish.loose { 2 } else { self.wish.values.len() };
        values + 2
    }

    fn best(&self) -> Option<&String> {
        let judged = self.seen.iter().filter_map(|(asin, seen)| Some((seen.missing?, seen.page, asin)));
        judged.min().map(|(_, _, asin)| asin)
    }

    fn at_results(&mut self, parts: &[&str]) -> String {
        let listed = listed(parts);
        let best = self.best().cloned();
        let page_of = |asin: &String| self.seen.get(asin).map_or(self.page, |seen| seen.page);
        let detour = best.as_ref().map_or(0, |asin| page_of(asin).abs_diff(self.page));
        // Checking another product takes two steps.
        let settled =
            self.settled.clone().or_else(|| best.clone().filter(|_| self.left() < self.cost() + detour + 2));
        if let Some(asin) = settled {
            let page = page_of(&asin);
            self.settled = Some(asin.clone());
            return match page.cmp(&self.page) {
                std::cmp::Ordering::Less => "click[< prev]".to_owned(),
                std::cmp::Ordering::Greater => "click[next >]".to_owned(),
                std::cmp::Ordering::Equal => self.click(&asin, parts),
            };
        }
        let open = |entry: &Listed<'_>| !self.seen.contains_key(&entry.asin.to_lowercase());
        let fits = |entry: &Listed<'_>| self.wish.limit.is_none_or(|limit| entry.price <= f64::from(limit));
        // Search ranks better than titles do, so only titles without any of the words move down.
        let score = |(rank, entry): &(usize, &Listed<'_>)| {
            5 * usize::from(self.wish.missing(entry.title) == self.wish.words.len()) + rank
        };
        let fresh = listed.iter().enumerate().filter(|(_, entry)| open(entry) && fits(entry));
        let next = fresh.min_by_key(score).map(|(_, entry)| entry);
        if let Some(entry) = next {
            let asin = entry.asin.to_lowercase();
            return self.click(&asin, parts);
        }
        if !listed.is_empty() && self.page < PAGES && self.left() > self.cost() + 2 {
            return "click[next >]".to_owned();
        }
        if let Some(asin) = best.or_else(|| listed.first().map(|entry| entry.asin.to_lowercase())) {
            self.settled = Some(asin.clone());
            return if page_of(&asin) < self.page {
                "click[< prev]".to_owned()
            } else {
                self.click(&asin, parts)
            };
        }
        // The second half of the query usually names the type of product.
        let words: Vec<&str> = self.wish.query.split(' ').collect();
        let shorter = words[words.len() / 2..].join(" ");
        self.wish.query = shorter;
        format!("search[{}]", self.wish.query)
    }

    fn click(&mut self, asin: &str, parts: &[&str]) -> String {
        let entry = self.seen.entry(asin.to_owned()).or_default();
        entry.page = self.page;
        if entry.text.is_empty()
            && let Some(found) = listed(parts).iter().find(|entry| entry.asin.eq_ignore_ascii_case(asin))
        {
            found.title.clone_into(&mut entry.text);
        }
        self.open = Some(asin.to_owned());
        format!("click[{asin}]")
    }

    fn at_product(
        &mut self,
        observation: &Observation,
        parts: &[&str],
        option_drop_prob: &mut dyn FnMut() -> bool,
    ) -> String {
        let offered: Vec<&str> = observation
            .admissible
            .iter()
            .filter_map(|action| action.strip_prefix("click[")?.strip_suffix(']'))
            .filter(|name| !BUTTONS.contains(name))
            .collect();
        let wanted = self.wish.wanted(&offered);
        let absent = self.wish.values.iter().filter(|value| !offered.contains(&value.as_str())).count();
        let Some(open) = self.open.clone() else {
            return self.choose_or_buy(&wanted, option_drop_prob);
        };
        let left = self.left();
        let cost = wanted.len() + 1;
        let seen = self.seen.entry(open.clone()).or_default();
        if seen.text.is_empty() {
            seen.text = parts.join(" ");
        }
        // Words of free-form instructions may be option values.
        let page = if self.wish.loose { parts.join(" ") } else { String::new() };
        let missing = self.wish.missing(&format!("{} {page}", seen.text))
            + 10 * absent
            + 2 * self.wish.unmet(parts, &offered, &wanted);
        if self.settled.is_none() {
            if absent == 0 && missing > 0 && !seen.read && left > cost + 2 {
                return "click[features]".to_owned();
            }
            seen.missing = Some(missing);
            if missing == 0 || left <= cost + 3 && self.best() == Some(&open) {
                self.settled = Some(open.clone());
            }
        }
        if self.settled.as_ref() != Some(&open) {
            return "click[< prev]".to_owned();
        }
        self.choose_or_buy(&wanted, option_drop_prob)
    }

    fn choose_or_buy(&mut self, wanted: &[String], option_drop_prob: &mut dyn FnMut() -> bool) -> String {
        for value in wanted {
            if self.chosen.insert(value.clone()) && !option_drop_prob() {
                return format!("click[{value}]");
            }
        }
        "click[buy now]".to_owned()
    }
}

impl Wish {
    fn read(instruction: &str) -> Self {
        let (text, price) = match instruction.split_once(", and price lower than ") {
            Some((text, price)) => {
                (text, price.split(['.', ' ']).next().and_then(|digits| digits.parse().ok()))
            }
            None => (instruction, None),
        };
        let loose = !text.starts_with("Find me ");
        let text = text.strip_prefix("Find me ").unwrap_or(text);
        let mut segments = text.split(", and ");
        let mut description = segments.next().unwrap_or_default().to_owned();
        let mut values = Vec::new();
        if !loose
            && let Some((before, value)) = description.clone().split_once(": ")
            && let Some((words, _)) = before.rsplit_once(" with ")
        {
            values.push(value.to_owned());
            words.clone_into(&mut description);
        }
        for segment in segments {
            match segment.split_once(": ") {
                Some((_, value)) if !values.is_empty() => values.push(value.to_owned()),
                // A value that contains the separator.
                None if !values.is_empty() => {
                    if let Some(last) = values.last_mut() {
                        last.push_str(", and ");
                        last.push_str(segment);
                    }
                }
                _ => {
                    description.push_str(" and ");
                    description.push_str(segment);
                }
            }
        }
        let words = words(&description);
        let query = [description.as_str()].into_iter().chain(values.iter().map(String::as_str));
        let query = query.collect::<Vec<_>>().join(" ").replace(['[', ']', '\n'], " ");
        let query = if loose { plain(&description) } else { query };
        Self { query, words, values, text: text.to_lowercase(), limit: price, loose }
    }

    fn missing(&self, text: &str) -> usize {
        let found = words(text);
        self.words.iter().filter(|word| !found.contains(*word)).count()
    }

    fn unmet(&self, parts: &[&str], offered: &[&str], wanted: &[String]) -> usize {
        let named = |part: &&&str| self.loose && !offered.contains(*part) && has_phrase(&self.text, part);
        let met = |name: &str| {
            let says = |value: &String| {
                [": ", " "].iter().any(|gap| has_phrase(&self.text, &format!("{name}{gap}{value}")))
            };
            wanted.iter().any(says)
        };
        parts.iter().filter(named).filter(|name| !met(name)).count()
    }

    /// Returns the offered option values that the instruction requests. For free-form instructions,
    /// the result is the values that occur in the text, except parts of longer values.
    fn wanted(&self, offered: &[&str]) -> Vec<String> {
        if !self.values.is_empty() {
            return self.values.iter().filter(|value| offered.contains(&value.as_str())).cloned().collect();
        }
        let mut inside: Vec<&str> =
            offered.iter().copied().filter(|value| has_phrase(&self.text, value)).collect();
        inside.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let mut wanted: Vec<String> = Vec::new();
        for value in inside {
            if !wanted.iter().any(|longer| has_phrase(longer, value)) {
                wanted.push(value.to_owned());
            }
        }
        wanted
    }
}

fn has_phrase(text: &str, phrase: &str) -> bool {
    let solid = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    !phrase.is_empty()
        && text.match_indices(phrase).any(|(at, _)| {
            !solid(text[..at].chars().next_back()) && !solid(text[at + phrase.len()..].chars().next())
        })
}

fn plain(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|character: char| !character.is_alphanumeric() && character != '\'');
    let kept = words.filter(|word| !word.is_empty() && !is_filler(word));
    kept.collect::<Vec<_>>().join(" ")
}

fn is_filler(word: &str) -> bool {
    FILLERS.split_ascii_whitespace().any(|filler| filler == word)
}

fn words(text: &str) -> BTreeSet<String> {
    let lower = text.to_lowercase();
    let split = lower.split(|character: char| !character.is_alphanumeric() && character != '\'');
    split
        .map(|word| word.trim_matches('\'').trim_end_matches("'s"))
        .filter(|word| !word.is_empty() && !is_filler(word))
        .map(stem)
        .collect()
}

fn stem(word: &str) -> String {
    let without = |ending: &str| word.strip_suffix(ending).filter(|rest| rest.len() > 2);
    if let Some(rest) = without("ies") {
        return format!("{rest}y");
    }
    if word.ends_with("ss") {
        return word.to_owned();
    }
    for ending in ["ches", "shes", "xes", "sses"] {
        if without(ending).is_some() {
            return word[..word.len() - 2].to_owned();
        }
    }
    without("s").unwrap_or(word).to_owned()
}

/// Returns the parts of a page that follow the instruction, without the markup of `text_rich`.
fn parts(text: &str) -> Vec<&str> {
    let rich = !text.contains(" [SEP] ");
    let all: Vec<&str> = if rich {
        let plain = |line| {
            let line = str::trim(line);
            let line =
                line.strip_prefix("[button] ").or(line.strip_prefix("[clicked button] ")).unwrap_or(line);
            line.strip_suffix(" [button_]").or(line.strip_suffix(" [clicked button_]")).unwrap_or(line)
        };
        text.lines().map(plain).filter(|line| !line.is_empty()).collect()
    } else {
        text.split(" [SEP] ").collect()
    };
    let start = all.iter().position(|part| part.trim() == "Instruction:").map_or(0, |index| index + 2);
    all.into_iter().skip(start).collect()
}

fn page_number(part: &str) -> Option<usize> {
    part.strip_prefix("Page ")?.split_once(" (Total results: ")?.0.parse().ok()
}

struct Listed<'a> {
    asin: &'a str,
    title: &'a str,
    price: f64,
}

fn listed<'a>(parts: &[&'a str]) -> Vec<Listed<'a>> {
    let Some(start) = parts.iter().position(|part| *part == "Next >") else { return Vec::new() };
    let entries = parts[start + 1..].as_chunks::<3>().0.iter();
    entries
        .map(|[asin, title, price]| {
            let first = price.trim_start_matches('$').split(' ').next().unwrap_or_default();
            Listed { asin, title, price: first.parse().unwrap_or(0.0) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_taken_apart() {
        let wish = Wish::read(
            "Find me slim fit men's henleys with short sleeve with color: 152- green, and size: 3x-large, and price lower \
             than 50.00 dollars",
        );
        assert_eq!(wish.values, ["152- green", "3x-large"]);
        assert_eq!(wish.limit, Some(50));
        assert_eq!(wish.query, "slim fit men's henleys with short sleeve 152- green 3x-large");
        assert_eq!(wish.missing("Slim Fit Henley Shirt for Men, Short Sleeves"), 0);
        assert_eq!(wish.missing("Long sleeve shirt"), 5);

        let wish = Wish::read("i want light blue mugs, size large");
        assert!(wish.values.is_empty() && wish.limit.is_none());
        assert_eq!(wish.wanted(&["blue", "light blue", "large", "x-large", "l"]), ["light blue", "large"]);
    }

    #[test]
    fn both_ways_of_writing_a_page_are_read_alike() {
        let text = "Instruction: [SEP] x [SEP] Back to Search [SEP] Page 2 (Total results: 12) [SEP] < Prev [SEP] Next > [SEP] B1 \
                    [SEP] Mug [SEP] $1.5 to $2.0";
        let rich = "Instruction:\nx\n[button] Back to Search [button_]\nPage 2 (Total results: 12)\n[button] < Prev [button_]\n\
                    [button] Next > [button_]\n\n[clicked button] B1 [clicked button_]\nMug\n$1.5 to $2.0\n";
        assert_eq!(parts(text), parts(rich));
        let parts = parts(text);
        assert_eq!(parts.iter().find_map(|part| page_number(part)), Some(2));
        let listed = listed(&parts);
        assert_eq!((listed[0].asin, listed[0].title, listed[0].price), ("B1", "Mug", 1.5));
    }
}
