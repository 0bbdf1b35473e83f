//! Loads prompt templates from TOML.

use std::path::Path;

use serde::Deserialize;
use turnwise_core::EnvError;

use super::observation::ObservationSection;
use super::text::{Rule, Slot, Text, nearest};
use super::{PictureTexts, PromptTemplate};
use crate::parse::ResponseRules;
use crate::registry::Registry;

struct Section {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

impl Section {
    fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.required.iter().chain(self.optional).copied()
    }
}

const SECTIONS: [Section; 5] = [
    Section {
        name: "response",
        required: &["style", "text", "end", "stop"],
        optional: &[
            "action_tags",
            "calls",
            "text_answer",
            "error",
            "action_names",
            "blocks",
            "reasoning_tags",
            "reasoning",
            "label",
            "case",
            "forbidden",
            "tail",
            "trim_tail",
            "open_reply",
        ],
    },
    Section {
        name: "observation",
        required: &["goal_marker", "keep_goal"],
        optional: &["goal_end", "separator", "join", "quote", "lowercase"],
    },
    Section { name: "history", required: &["line", "separator"], optional: &["max_chars", "outcomes"] },
    Section { name: "admissible", required: &["item", "separator", "exclude"], optional: &[] },
    Section {
        name: "prompt",
        required: &[
            "first",
            "later",
            "masked",
            "masked_goal",
            "masked_history",
            "concatenated_first",
            "concatenated_next",
        ],
        optional: &["summarize", "compacted"],
    },
];

const PICTURES: Section =
    Section { name: "pictures", required: &["prompt", "masked"], optional: &["observation"] };

const FULL: Rule = Rule {
    allowed: &[
        Slot::TaskDescription,
        Slot::StepCount,
        Slot::HistoryLength,
        Slot::ActionHistory,
        Slot::CurrentStep,
        Slot::CurrentObservation,
        Slot::AdmissibleActions,
    ],
    required: &[Slot::TaskDescription, Slot::ActionHistory, Slot::CurrentObservation],
    why: "it belongs to history lines and responses",
};
/// Rule for templates with `history.outcomes`: the prompt must contain the history, whose last line
/// then shows the current observation.
const FULL_OUTCOMES: Rule = Rule { required: &[Slot::TaskDescription, Slot::ActionHistory], ..FULL };
const HIDDEN_HISTORY_OUTCOMES: Rule = Rule { required: &[Slot::TaskDescription], ..HIDDEN_HISTORY };
const HIDDEN_GOAL_OUTCOMES: Rule = Rule { required: &[Slot::ActionHistory], ..HIDDEN_GOAL };
const MASKED_OUTCOMES: Rule = Rule { required: &[], ..MASKED };
const NO_HISTORY: Rule = Rule {
    allowed: &[
        Slot::TaskDescription,
        Slot::StepCount,
        Slot::CurrentStep,
        Slot::CurrentObservation,
        Slot::AdmissibleActions,
    ],
    required: &[Slot::CurrentObservation],
    why: "this prompt has no history",
};
const HIDDEN_HISTORY: Rule = Rule {
    allowed: NO_HISTORY.allowed,
    required: &[Slot::TaskDescription, Slot::CurrentObservation],
    why: NO_HISTORY.why,
};
const HIDDEN_GOAL: Rule = Rule {
    allowed: &[
        Slot::StepCount,
        Slot::HistoryLength,
        Slot::ActionHistory,
        Slot::CurrentStep,
        Slot::CurrentObservation,
        Slot::AdmissibleActions,
    ],
    required: &[Slot::ActionHistory, Slot::CurrentObservation],
    why: "this prompt hides the goal",
};
const MASKED: Rule = Rule {
    allowed: &[Slot::StepCount, Slot::CurrentStep, Slot::CurrentObservation, Slot::AdmissibleActions],
    required: &[Slot::CurrentObservation],
    why: "this prompt hides goal and history",
};
const COMPACTED: Rule = Rule {
    allowed: &[Slot::FirstObservation, Slot::Summary, Slot::CurrentObservation],
    required: &[Slot::FirstObservation, Slot::Summary, Slot::CurrentObservation],
    why: "this text replaces {current_observation} of prompt.concatenated_first after a compaction",
};
const PICTURE: Rule = Rule {
    allowed: &[
        Slot::TaskDescription,
        Slot::StepCount,
        Slot::CurrentStep,
        Slot::CurrentObservation,
        Slot::AdmissibleActions,
        Slot::Image,
    ],
    required: &[Slot::Image],
    why: "prompts with pictures have no history",
};
const MASKED_PICTURE: Rule = Rule {
    allowed: &[
        Slot::StepCount,
        Slot::CurrentStep,
        Slot::CurrentObservation,
        Slot::AdmissibleActions,
        Slot::Image,
    ],
    required: &[Slot::Image],
    why: MASKED.why,
};
const LINE: Rule = Rule {
    allowed: &[Slot::Step, Slot::Observation, Slot::Action],
    required: &[Slot::Observation, Slot::Action],
    why: "a history line shows one earlier turn",
};
const ITEM: Rule = Rule {
    allowed: &[Slot::Action],
    required: &[Slot::Action],
    why: "this is the form of one admissible action",
};
const RESPONSE: Rule = Rule {
    allowed: &[Slot::Action, Slot::Thought],
    required: &[Slot::Action],
    why: "a response is made of a thought and an action",
};

#[derive(Deserialize)]
struct File {
    response: ResponseSection,
    observation: ObservationSection,
    history: HistorySection,
    admissible: AdmissibleSection,
    prompt: PromptSection,
    pictures: Option<PicturesSection>,
}

#[derive(Deserialize)]
struct PicturesSection {
    prompt: String,
    masked: String,
    observation: Option<ObservationSection>,
}

#[derive(Deserialize)]
struct ResponseSection {
    text: String,
    end: String,
    stop: Vec<String>,
    /// Whether multi-turn prompts insert observations into a single reply, which the policy then
    /// continues.
    #[serde(default)]
    open_reply: bool,
}

#[derive(Deserialize)]
struct HistorySection {
    line: String,
    separator: String,
    /// Maximum characters of a per-turn prompt; a prompt that would be longer omits the history.
    max_chars: Option<usize>,
    /// Whether a history line shows the observation after its action instead of the one before it.
    #[serde(default)]
    outcomes: bool,
}

#[derive(Deserialize)]
struct AdmissibleSection {
    item: String,
    separator: String,
    exclude: Vec<String>,
}

#[derive(Deserialize)]
struct PromptSection {
    first: String,
    later: String,
    masked: String,
    masked_goal: String,
    masked_history: String,
    concatenated_first: String,
    concatenated_next: String,
    #[serde(default = "summarize")]
    summarize: String,
    /// Text that replaces the observation in `concatenated_first` after the policy has written a
    /// summary.
    #[serde(default = "compacted")]
    compacted: String,
}

fn summarize() -> String {
    "\n{current_observation}\n\nThe conversation has become too long. From the next turn on you will see the task, a summary \
     that you write now, and the observation above. Write the summary: what you have done, what you have found, and what is \
     left to do. Do not act in this turn.\n"
        .to_owned()
}

fn compacted() -> String {
    "{first_observation}\n\nYour summary of the turns since then:\n{summary}\n\n{current_observation}"
        .to_owned()
}

impl PromptTemplate {
    /// Loads the template from the file at the path `name` or, if it does not exist, the
    /// embedded template of this name.
    ///
    /// # Errors
    /// Fails if neither the file nor the template exists, or if the file is invalid.
    pub fn named(name: &str) -> Result<Self, EnvError> {
        Self::find(name, &Registry::builtin())
    }

    /// Like [`PromptTemplate::named`], but looks for embedded templates in `registry` instead of
    /// the built-in registry.
    ///
    /// # Errors
    /// Fails if neither the file nor the template exists, or if the file is invalid.
    pub fn find(name: &str, registry: &Registry) -> Result<Self, EnvError> {
        let path = Path::new(name);
        if path.is_file() {
            let source = std::fs::read_to_string(path)
                .map_err(|source| EnvError::Io { path: name.to_owned(), source })?;
            return Self::parse_in(&source, name, registry);
        }
        let source = embedded(name, registry).map_err(EnvError::Other)?;
        Self::parse_in(source, &format!("embedded template `{name}`"), registry)
    }

    /// Loads a template file.
    ///
    /// # Errors
    /// Returns [`EnvError::Io`] if the file cannot be read, and otherwise the errors of
    /// [`PromptTemplate::parse`].
    pub fn load(path: &Path) -> Result<Self, EnvError> {
        let file = path.display().to_string();
        let source =
            std::fs::read_to_string(path).map_err(|source| EnvError::Io { path: file.clone(), source })?;
        Self::parse(&source, &file)
    }

    /// Parses a template; `file` is for error messages.
    ///
    /// # Errors
    /// Returns [`EnvError::File`], which names the invalid key.
    pub fn parse(source: &str, file: &str) -> Result<Self, EnvError> {
        Self::parse_in(source, file, &Registry::builtin())
    }

    /// Parses a template; its `base` is looked up among the templates of `registry`.
    ///
    /// # Errors
    /// Fails if a key is invalid; the error names it.
    pub(crate) fn parse_in(source: &str, file: &str, registry: &Registry) -> Result<Self, EnvError> {
        Self::read(source, registry).map_err(|reason| EnvError::File { path: file.to_owned(), reason })
    }

    fn read(source: &str, registry: &Registry) -> Result<Self, String> {
        let table = with_base(source, registry, 0)?;
        for Section { name: section, required, .. } in SECTIONS.iter().chain([&PICTURES]) {
            let Some(toml::Value::Table(values)) = table.get(*section) else {
                if *section == PICTURES.name {
                    continue;
                }
                return Err(format!(
                    "the section [{section}] is missing; add it, or start from `base = \"alfworld\"`"
                ));
            };
            if let Some(missing) = required.iter().find(|key| !values.contains_key(**key)) {
                return Err(format!(
                    "{section}.{missing} is missing; add it, or start from an embedded template with `base = \"alfworld\"`"
                ));
            }
        }
        // Parsed separately, so that errors name their key.
        let rules = table["response"].clone().try_into();
        let rules: ResponseRules = rules.map_err(|error: toml::de::Error| {
            let text = error.to_string();
            match text.trim().rsplit_once("in `") {
                Some((reason, key)) => format!("response.{}: {}", key.trim_end_matches('`'), reason.trim()),
                None => format!("response: {text}"),
            }
        })?;
        let own: toml::Table = source.parse().map_err(|error: toml::de::Error| error.to_string())?;
        if let Some(own) = own.get("response").and_then(toml::Value::as_table) {
            rules.check_effect(own.keys().map(String::as_str))?;
        }
        let file: File = table.try_into().map_err(|error: toml::de::Error| error.to_string())?;
        Self::compile(file, rules)
    }

    fn compile(file: File, rules: ResponseRules) -> Result<Self, String> {
        let text = |key: &str, source: &str, rule: &Rule| {
            Text::parse(source, rule).map_err(|reason| format!("{key}: {reason}"))
        };
        rules.check()?;
        let outcomes = file.history.outcomes;
        let rule = |before: &'static Rule, after: &'static Rule| if outcomes { after } else { before };
        let pictures = match file.pictures {
            None => None,
            Some(PicturesSection { prompt, masked, observation }) => Some(Box::new(PictureTexts {
                prompt: text("pictures.prompt", &prompt, &PICTURE)?,
                masked: text("pictures.masked", &masked, &MASKED_PICTURE)?,
                observation: observation.unwrap_or_else(|| file.observation.clone()),
            })),
        };
        let template = Self {
            pictures,
            rules,
            response: text("response.text", &file.response.text, &RESPONSE)?,
            end: file.response.end,
            stop: file.response.stop,
            open_reply: file.response.open_reply,
            observation: file.observation,
            line: text("history.line", &file.history.line, &LINE)?,
            line_separator: file.history.separator,
            max_chars: file.history.max_chars,
            outcomes,
            item: text("admissible.item", &file.admissible.item, &ITEM)?,
            item_separator: file.admissible.separator,
            exclude: file.admissible.exclude,
            first: text("prompt.first", &file.prompt.first, &NO_HISTORY)?,
            later: text("prompt.later", &file.prompt.later, rule(&FULL, &FULL_OUTCOMES))?,
            masked: text("prompt.masked", &file.prompt.masked, rule(&MASKED, &MASKED_OUTCOMES))?,
            masked_goal: text(
                "prompt.masked_goal",
                &file.prompt.masked_goal,
                rule(&HIDDEN_GOAL, &HIDDEN_GOAL_OUTCOMES),
            )?,
            masked_history: text(
                "prompt.masked_history",
                &file.prompt.masked_history,
                rule(&HIDDEN_HISTORY, &HIDDEN_HISTORY_OUTCOMES),
            )?,
            concatenated_first: text(
                "prompt.concatenated_first",
                &file.prompt.concatenated_first,
                &NO_HISTORY,
            )?,
            concatenated_next: text("prompt.concatenated_next", &file.prompt.concatenated_next, &NO_HISTORY)?,
            summarize: text("prompt.summarize", &file.prompt.summarize, &NO_HISTORY)?,
            compacted: text("prompt.compacted", &file.prompt.compacted, &COMPACTED)?,
        };
        if !template.observation.keep_goal && !template.first.has(Slot::TaskDescription) {
            return Err(
                "prompt.first: with observation.keep_goal = false no prompt but this states the goal at the \
                        first turn; add {task_description}"
                    .to_owned(),
            );
        }
        if file.prompt.masked.is_empty() {
            return Err("prompt.masked: is empty, and a response has no probability after no token at all, so that STAPO's \
                        selective term would leave its turns out; write what a prompt without goal and history still has, \
                        if only \"\\n\""
                .to_owned());
        }
        if template.stop.iter().any(String::is_empty) {
            return Err("response.stop: an empty string would end every response; remove it".to_owned());
        }
        Ok(template)
    }
}

const MOST_BASES: usize = 8;

fn with_base(source: &str, registry: &Registry, depth: usize) -> Result<toml::Table, String> {
    let mut table: toml::Table = source.parse().map_err(|error: toml::de::Error| error.to_string())?;
    check_keys(&table)?;
    match table.remove("base") {
        None => Ok(table),
        Some(toml::Value::String(base)) if depth < MOST_BASES => {
            let mut whole = with_base(embedded(&base, registry)?, registry, depth + 1)?;
            for (section, values) in table {
                match (whole.get_mut(&section), values) {
                    (Some(toml::Value::Table(under)), toml::Value::Table(over)) => under.extend(over),
                    (_, values) => {
                        whole.insert(section, values);
                    }
                }
            }
            Ok(whole)
        }
        Some(toml::Value::String(base)) => Err(format!("base: `{base}` stands on itself")),
        Some(_) => Err("base: must be the name of an embedded template, in quotes".to_owned()),
    }
}

fn embedded<'a>(name: &str, registry: &'a Registry) -> Result<&'a str, String> {
    registry.template(name).ok_or_else(|| {
        let known: Vec<&str> = registry.templates().map(|(name, _)| name).collect();
        let meant = nearest(name, known.iter().copied());
        let meant = meant.map(|near| format!(" did you mean `{near}`?")).unwrap_or_default();
        let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
        format!(
            "unknown prompt template `{name}`:{meant} embedded are {}; anything else must be the path of a template file",
            known.join(", ")
        )
    })
}

fn check_keys(table: &toml::Table) -> Result<(), String> {
    for (section, values) in table {
        if section == "base" {
            continue;
        }
        let sections = || SECTIONS.iter().chain([&PICTURES]);
        let Some(known) = sections().find(|known| known.name == section) else {
            let sections = sections().map(|known| known.name);
            return Err(match nearest(section, sections.clone().chain(["base"])) {
                Some(near) => format!("unknown key `{section}`; did you mean `{near}`?"),
                None => format!(
                    "unknown key `{section}`; there are base, {}",
                    sections.collect::<Vec<_>>().join(", ")
                ),
            });
        };
        let Some(values) = values.as_table() else {
            return Err(format!("`{section}` must be a section: write [{section}] on a line of its own"));
        };
        for key in values.keys() {
            if !known.keys().any(|known| known == key) {
                return Err(match nearest(key, known.keys()) {
                    Some(near) => format!("unknown key `{section}.{key}`; did you mean `{section}.{near}`?"),
                    None => format!(
                        "unknown key `{section}.{key}`; [{section}] has {}",
                        known.keys().collect::<Vec<_>>().join(", ")
                    ),
                });
            }
        }
    }
    Ok(())
}
