//! Prompt texts with placeholders, which are checked when a template is parsed, so that rendering
//! cannot fail.

use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    TaskDescription,
    StepCount,
    HistoryLength,
    ActionHistory,
    CurrentStep,
    CurrentObservation,
    Image,
    AdmissibleActions,
    Step,
    Observation,
    Action,
    Thought,
    FirstObservation,
    Summary,
}

impl Slot {
    const ALL: [Self; 14] = [
        Self::TaskDescription,
        Self::StepCount,
        Self::HistoryLength,
        Self::ActionHistory,
        Self::CurrentStep,
        Self::CurrentObservation,
        Self::Image,
        Self::AdmissibleActions,
        Self::Step,
        Self::Observation,
        Self::Action,
        Self::Thought,
        Self::FirstObservation,
        Self::Summary,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TaskDescription => "task_description",
            Self::StepCount => "step_count",
            Self::HistoryLength => "history_length",
            Self::ActionHistory => "action_history",
            Self::CurrentStep => "current_step",
            Self::CurrentObservation => "current_observation",
            Self::Image => "image",
            Self::AdmissibleActions => "admissible_actions",
            Self::Step => "step",
            Self::Observation => "observation",
            Self::Action => "action",
            Self::Thought => "thought",
            Self::FirstObservation => "first_observation",
            Self::Summary => "summary",
        }
    }
}

pub(super) struct Rule {
    pub(super) allowed: &'static [Slot],
    pub(super) required: &'static [Slot],
    /// Reason shown after "{name} has no place here: ".
    pub(super) why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Slot(Slot),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text(Vec<Piece>);

impl Text {
    pub(super) fn parse(source: &str, rule: &Rule) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = source;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if let Some(doubled) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = doubled;
                continue;
            }
            let end = if brace == "{" { after.find('}') } else { None };
            let Some(end) = end else {
                return Err(format!(
                    "a single `{brace}` at byte {}; write `{brace}{brace}` for the character itself",
                    source.len() - rest.len() + at
                ));
            };
            let slot = slot(&after[..end], rule)?;
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Slot(slot));
            rest = &after[end + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        let text = Self(pieces);
        match rule.required.iter().find(|slot| !text.has(**slot)) {
            Some(missing) => {
                Err(format!("the placeholder {{{}}} is missing; it must occur at least once", missing.name()))
            }
            None => Ok(text),
        }
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        self.0.contains(&Piece::Slot(slot))
    }

    pub(super) fn fill(&self, into: &mut String, mut value: impl FnMut(Slot, &mut String)) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => into.push_str(text),
                Piece::Slot(slot) => value(*slot, into),
            }
        }
    }
}

fn slot(name: &str, rule: &Rule) -> Result<Slot, String> {
    if let Some(slot) = rule.allowed.iter().find(|slot| slot.name() == name) {
        return Ok(*slot);
    }
    let mut known = String::new();
    for slot in rule.allowed {
        let _ = write!(known, "{}{{{}}}", if known.is_empty() { "" } else { ", " }, slot.name());
    }
    if Slot::ALL.iter().any(|slot| slot.name() == name) {
        return Err(format!("the placeholder {{{name}}} has no place here: {}; there are {known}", rule.why));
    }
    Err(match nearest(name, rule.allowed.iter().map(|slot| slot.name())) {
        Some(near) => format!("unknown placeholder {{{name}}}; did you mean {{{near}}}? There are {known}"),
        None => format!("unknown placeholder {{{name}}}; there are {known}"),
    })
}

pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().max(3) / 2)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule {
        allowed: &[Slot::CurrentObservation, Slot::CurrentStep],
        required: &[Slot::CurrentObservation],
        why: "this prompt hides the goal",
    };

    fn error(source: &str) -> String {
        Text::parse(source, &RULE).unwrap_err()
    }

    #[test]
    fn placeholders_are_filled_and_braces_escaped() {
        let text = Text::parse("{{{current_step}}} {current_observation}!", &RULE).unwrap();
        let mut out = String::new();
        text.fill(&mut out, |slot, out| out.push_str(if slot == Slot::CurrentStep { "3" } else { "{x}" }));
        assert_eq!(out, "{3} {x}!");
    }

    #[test]
    fn errors_name_the_mend() {
        let unknown = error("{curent_observation}");
        assert!(unknown.contains("{curent_observation}; did you mean {current_observation}?"), "{unknown}");
        let forbidden = error("{task_description} {current_observation}");
        assert!(
            forbidden.contains("{task_description} has no place here: this prompt hides the goal"),
            "{forbidden}"
        );
        assert!(error("nothing").contains("{current_observation} is missing"));
        assert!(error("{current_observation} {").contains("a single `{` at byte 22"));
        assert!(error("a} {current_observation}").contains("a single `}` at byte 1"));
        assert!(
            error("{qqqqqqqqqqqqqqqqqqqqqqqqq}")
                .starts_with("unknown placeholder {qqqqqqqqqqqqqqqqqqqqqqqqq}; there are")
        );
    }
}
