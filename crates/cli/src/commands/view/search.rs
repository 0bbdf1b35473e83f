//! Full-text search in a run's trajectories, newest step first. A page ends after [`RESULTS`]
//! results or [`TIME`]; the next page continues with the first unsearched step.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use turnwise_core::Trajectory;

use super::query::Place;
use super::source::Source;
use crate::commands::pages::html::escape;

const RESULTS: usize = 100;

/// Time limit per page, after which no further files are searched.
const TIME: Duration = Duration::from_millis(1500);

const AROUND: usize = 70;

const TASK: &str = "task";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// Turn of the match; `None` for matches in the task or last observation.
    pub(super) turn: Option<usize>,
    part: &'static str,
    excerpt: [String; 3],
}

struct Hit {
    step: u64,
    group: usize,
    index: usize,
    found: Found,
}

pub(super) fn first(trajectory: &Trajectory, words: &str) -> Option<Found> {
    let of = |turn: Option<usize>, part: &'static str, text: &str| {
        Some(Found { turn, part, excerpt: excerpt(text, words)? })
    };
    of(None, TASK, &trajectory.task.goal).or_else(|| of(None, TASK, &trajectory.task.id)).or_else(|| {
        let turns = trajectory.turns.iter().enumerate();
        let mut found = turns.filter_map(|(index, turn)| {
            let index = Some(index);
            let parts = || turn.parts.iter().filter_map(|part| part.text());
            of(index, "observation", &turn.observation)
                .or_else(|| parts().find_map(|text| of(index, "observation", text)))
                .or_else(|| of(index, "response", &turn.response))
                .or_else(|| of(index, "action", &turn.action))
        });
        found.next().or_else(|| of(None, "last observation", &trajectory.final_observation))
    })
}

fn excerpt(text: &str, words: &str) -> Option<[String; 3]> {
    // In ASCII, lower case has the same length.
    let (start, end) = if text.is_ascii() {
        let start = find_ascii(text.as_bytes(), words.as_bytes())?;
        (start, start + words.len())
    } else {
        let lower: String = text.chars().flat_map(char::to_lowercase).collect();
        let start = lower.find(words)?;
        // Lower case may change lengths in bytes, so letters are counted.
        let letters = lower[..start].chars().count();
        let count = words.chars().count();
        let place = |letter: usize| text.char_indices().nth(letter).map_or(text.len(), |(at, _)| at);
        (place(letters), place(letters + count))
    };
    let before: Vec<char> = text[..start].chars().rev().take(AROUND).collect();
    let behind: String = text[end..].chars().take(AROUND).collect();
    Some([before.into_iter().rev().collect(), text[start..end].to_owned(), behind])
}

fn find_ascii(text: &[u8], words: &[u8]) -> Option<usize> {
    let (&first, rest) = words.split_first()?;
    let upper = first.to_ascii_uppercase();
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|&byte| byte == first || byte == upper) {
        let at = from + at;
        let behind = text.get(at + 1..at + 1 + rest.len())?;
        if behind.eq_ignore_ascii_case(rest) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Returns true if a JSON line may contain `quoted`, the search words with JSON escapes.
fn may_have(line: &str, quoted: &str) -> bool {
    if line.is_ascii() && quoted.is_ascii() {
        return find_ascii(line.as_bytes(), quoted.as_bytes()).is_some();
    }
    line.to_lowercase().contains(quoted)
}

fn quoted(words: &str) -> String {
    let text = serde_json::to_string(words).unwrap_or_default();
    text.trim_matches('"').to_owned()
}

#[derive(Default)]
struct Results {
    found: Vec<Hit>,
    /// Newest step that has not been searched yet.
    next: Option<u64>,
    steps: usize,
}

fn search(source: &Source, words: &str, before: Option<u64>) -> anyhow::Result<Results> {
    let start = Instant::now();
    let mut results = Results::default();
    let steps: Vec<u64> =
        source.steps().into_iter().filter(|&step| before.is_none_or(|before| step <= before)).collect();
    for &step in steps.iter().rev() {
        if results.found.len() >= RESULTS || start.elapsed() > TIME {
            results.next = Some(step);
            break;
        }
        results.steps += 1;
        match source.file(step) {
            Some(path) => search_file(&path, step, words, &mut results.found)?,
            None => search_step(source, step, words, &mut results.found)?,
        }
    }
    Ok(results)
}

fn search_file(path: &Path, step: u64, words: &str, results: &mut Vec<Hit>) -> anyhow::Result<()> {
    let quoted = quoted(words);
    let mut groups: std::collections::BTreeMap<usize, usize> = std::collections::BTreeMap::new();
    let mut found: Vec<(usize, usize, Found)> = Vec::new();
    for line in turnwise_files::lines(turnwise_files::open(path)?) {
        let line = line?;
        let Some(group) = group_of(&line) else { continue };
        let index = groups.entry(group).or_default();
        if may_have(&line, &quoted)
            && let Ok(trajectory) = serde_json::from_str::<Trajectory>(&line)
            && let Some(place) = first(&trajectory, words)
        {
            found.push((group, *index, place));
        }
        *index += 1;
    }
    found.dedup_by(|(next, _, words), (group, _, known)| {
        next == group && words.part == TASK && known.part == TASK
    });
    let place = |group: usize| groups.keys().position(|&known| known == group).unwrap_or(0);
    results.extend(found.into_iter().map(|(group, index, found)| Hit {
        step,
        group: place(group),
        index,
        found,
    }));
    Ok(())
}

/// Parses only the group index; `None` if the line is not a trajectory.
fn group_of(line: &str) -> Option<usize> {
    #[derive(serde::Deserialize)]
    struct Of {
        group: usize,
    }
    // A run writes this key right after the task, before text that could contain it.
    let short = || {
        let rest = line.split_once("},\"group\":")?.1;
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    short().or_else(|| serde_json::from_str::<Of>(line).ok().map(|of| of.group))
}

fn search_step(source: &Source, step: u64, words: &str, results: &mut Vec<Hit>) -> anyhow::Result<()> {
    for (group, members) in source.batch(step)?.groups.iter().enumerate() {
        let mut has_task = false;
        for (index, trajectory) in members.trajectories.iter().enumerate() {
            if let Some(found) = first(trajectory, words).filter(|found| found.part != TASK || !has_task) {
                has_task |= found.part == TASK;
                results.push(Hit { step, group, index, found });
            }
        }
    }
    Ok(())
}

pub(super) fn page(source: &Source, place: Place<'_>) -> anyhow::Result<String> {
    let words = place.query.get("q").to_lowercase();
    let mut body = format!("<h1>search</h1>{}", form(place, "/search", "search all steps"));
    if words.is_empty() {
        return Ok(body);
    }
    let results = search(source, &words, place.query.get("before").parse().ok())?;
    let more = if results.next.is_some() { " or more" } else { "" };
    let _ = write!(
        body,
        "<p class=\"status\">{}{more} results in {} steps for <b>{}</b></p><div class=\"results\">",
        results.found.len(),
        results.steps,
        escape(place.query.get("q"))
    );
    for result in results.found.iter().take(10 * RESULTS) {
        let Hit { step, group, index, found } = result;
        let anchor = found.turn.map_or_else(String::new, |turn| format!("u{turn}"));
        let turn = found.turn.map_or_else(String::new, |turn| format!(", turn {turn}"));
        let trajectory = if found.part == TASK { String::new() } else { format!(", trajectory {index}") };
        let [before, words, behind] = found.excerpt.each_ref().map(|text| escape(text));
        let link = place.link(&format!("/step/{step}/group/{group}"), &[("before", "")]);
        let _ = write!(
            body,
            "<p class=\"item\"><a href=\"{link}#g{group}t{index}{anchor}\">step {step}, group {group}{trajectory}{turn}</a> \
             <span class=\"status\">{}</span><br><span class=\"excerpt\">{before}<mark>{words}</mark>{behind}</span></p>",
            found.part
        );
    }
    body.push_str("</div>");
    if let Some(next) = results.next {
        let link = place.link("/search", &[("before", &next.to_string())]);
        let _ = write!(body, "<p><a rel=\"next\" href=\"{link}\">search on from step {next}</a></p>");
    }
    Ok(body)
}

pub(super) fn form(place: Place<'_>, path: &str, label: &str) -> String {
    format!(
        "<form class=\"search\" action=\"{}{path}\" method=\"get\" role=\"search\">{}<input type=\"search\" name=\"q\" value=\"{}\" \
         placeholder=\"{label}\" aria-label=\"{label}\"><button>search</button></form>",
        escape(place.base),
        place.query.hidden(&["q", "page", "before"]),
        escape(place.query.get("q"))
    )
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Task, Turn};

    use super::*;

    fn trajectory() -> Trajectory {
        let turn = |observation: &str, response: &str| Turn {
            observation: observation.into(),
            response: response.into(),
            ..Turn::default()
        };
        let turns = vec![turn("a <mug> \"on\"\na shelf", "look"), turn("Großer Tisch", "take MUG")];
        Trajectory::new(Task::new("t", "k", "find the key"), turns)
    }

    #[test]
    fn words_are_found_in_any_case_and_shown_as_they_are_written() {
        let found = |words: &str| first(&trajectory(), words);
        let place = found("take mug").unwrap();
        assert_eq!(
            (place.turn, place.part, &place.excerpt[1]),
            (Some(1), "response", &"take MUG".to_owned())
        );
        assert_eq!(found("<mug>").unwrap().excerpt[0], "a ");
        assert_eq!(found("the key").unwrap().turn, None);
        assert_eq!(found("großer").unwrap().excerpt, ["", "Großer", " Tisch"].map(str::to_owned));
        assert_eq!(found("nothing"), None);
    }

    #[test]
    fn lines_with_the_words_are_parsed_and_others_are_not() {
        let line = serde_json::to_string(&trajectory()).unwrap();
        for words in ["take mug", "\"on\"\na", "großer", "<mug>"] {
            assert!(may_have(&line, &quoted(words)), "{words}");
        }
        assert!(!may_have(&line, &quoted("nothing")));
        assert_eq!(group_of(&line), Some(0));
        let mut other = trajectory();
        other.group = 7;
        other.turns[0].observation = "},\"group\":3".into();
        assert_eq!(group_of(&serde_json::to_string(&other).unwrap()), Some(7));
        assert_eq!(group_of("{\"sample\": 1, \"group\": 5}"), Some(5));
    }
}
