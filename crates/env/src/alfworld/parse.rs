//! Parses the parts of official `game.tw-pddl` files that differ between games.

use std::borrow::Cow;

use serde::Deserialize;
use turnwise_core::EnvError;

use super::assembly;
use super::facts::Facts;
use super::game::{Game, Strings};
use super::goal::{Shape, TaskType};
use super::pddl::Reader;

const TASK_PREFIX: &str = "Your task is to: ";

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    grammar: Cow<'a, str>,
    #[serde(borrow)]
    pddl_problem: Cow<'a, str>,
    solvable: bool,
    #[serde(default)]
    walkthrough: Option<Vec<String>>,
}

impl Game {
    /// Parses a `game.tw-pddl` file. The game's id consists of the last three folders of the path
    /// `name`: split, task and trial. If the path has no split folder, the split is `games`.
    ///
    /// # Errors
    /// Returns [`EnvError::File`] if the file is not JSON, lacks a key, is marked unsolvable, has
    /// unknown facts or goals, or has another task type than its folder.
    pub fn parse(name: &str, text: &str) -> Result<Self, EnvError> {
        let unsolvable = || {
            "the game is marked `solvable: false`, and only solvable games are played; choose another"
                .to_owned()
        };
        parse(name, text)
            .and_then(|game| game.ok_or_else(unsolvable))
            .map_err(|reason| EnvError::File { path: name.to_owned(), reason })
    }
}

pub(super) fn id_of(name: &str) -> String {
    let mut parts: Vec<&str> =
        name.split(['/', '\\']).filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let file = parts.pop().unwrap_or_default();
    if file != super::files::GAME_FILE {
        return format!("games/{}", file.strip_suffix(".tw-pddl").unwrap_or(file));
    }
    if parts.len() < 3 {
        parts.insert(0, "games");
    }
    parts[parts.len().saturating_sub(3)..].join("/")
}

pub(super) fn parse(name: &str, text: &str) -> Result<Option<Game>, String> {
    let file: File<'_> = serde_json::from_str(text).map_err(|error| {
        format!(
            "not an ALFWorld game: {error}; expected JSON with the keys grammar, pddl_problem and solvable \
             (and walkthrough), as in the official json_2.1.1 games"
        )
    })?;
    if !file.solvable {
        return Ok(None);
    }
    let sentence = file
        .grammar
        .find(TASK_PREFIX)
        .and_then(|at| file.grammar[at + TASK_PREFIX.len()..].split_once('"'))
        .map(|(sentence, _)| sentence)
        .filter(|sentence| !sentence.is_empty() && !sentence.contains('\n'))
        .ok_or_else(|| format!("`grammar` has no line with \"{TASK_PREFIX}...\""))?;

    let mut reader = Reader::new(&file.pddl_problem);
    reader.seek(":init")?;
    let facts = Facts::read(&mut reader)?;
    reader.seek(":goal")?;
    let shape = Shape::read(&reader.list()?).map_err(|what| reader.error(&what))?;

    let id = id_of(name);
    let folder = id.split('/').nth(1).unwrap_or_default();
    let said = TaskType::ALL.into_iter().find(|kind| {
        folder.strip_prefix(kind.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    if said.is_some_and(|kind| kind != shape.task_type) {
        return Err(format!(
            "the goal is {}, but the folder is called `{folder}`; the file is in the wrong folder",
            shape.task_type
        ));
    }
    let floor_plan = said.and_then(|_| folder.rsplit_once('-')?.1.parse().ok());
    let (world, goal) = assembly::world(&facts, &shape)?;
    Ok(Some(Game {
        id: id.into(),
        sentence: sentence.into(),
        floor_plan,
        walkthrough: file.walkthrough.filter(|plan| !plan.is_empty()).map(|plan| Strings::new(&plan)),
        goal,
        world,
    }))
}
