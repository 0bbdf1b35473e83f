//! `turnwise play webshop --web`: the shop as pages to click through in a browser.
//!
//! Each page is made from the state behind the agent's observation, part by part, so a person sees
//! what the agent reads. A visit has its own address (`/visit/NUMBER`); opening `/` starts a new
//! one.

mod html;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use turnwise_core::{Action, Environment as _, Purpose, Seed, Task};
use turnwise_env::webshop::{WebshopEnv, WebshopSet};

use super::pages;
use super::pages::html::message;
use super::pages::http::{Reply, Request};
use crate::ui::print;

/// Visits kept at once; the oldest is forgotten first.
const VISITS: usize = 64;

/// One person's episode.
struct Visit {
    environment: WebshopEnv,
    task: Task,
    steps: usize,
    /// Note above the page: the last action was not understood, or how the episode ended.
    note: Option<String>,
    ended: bool,
}

/// All visits of a running shop.
struct Visits {
    set: WebshopSet,
    /// The goals, taken in turn.
    tasks: Vec<Task>,
    started: usize,
    open: BTreeMap<usize, Visit>,
}

/// Serves until the program is ended.
pub(crate) fn serve(set: WebshopSet, tasks: Vec<Task>, address: &str) -> anyhow::Result<()> {
    let (listener, address) = pages::listen("--web", address)?;
    print(&format!("The shop is open at http://{address}/ (Ctrl-C closes it)."));
    let visits = Mutex::new(Visits { set, tasks, started: 0, open: BTreeMap::new() });
    pages::serve(&listener, move |request| {
        visits.lock().unwrap_or_else(PoisonError::into_inner).reply(request)
    });
    Ok(())
}

impl Visits {
    fn reply(&mut self, request: &Request) -> Reply {
        let number = request.path.strip_prefix("/visit/").and_then(|number| number.parse::<usize>().ok());
        let reply = match (request.method.as_str(), number) {
            ("GET", None) if request.path == "/" => self.start(),
            ("GET", Some(number)) => self.show(number),
            ("POST", Some(number)) => self.act(number, request),
            ("GET", None) => Ok(Reply::page(404, message("There is no such page."))),
            _ => Ok(Reply::page(405, message("This cannot be done here."))),
        };
        reply.unwrap_or_else(|error| Reply::page(500, message(&format!("{error:#}"))))
    }

    fn start(&mut self) -> anyhow::Result<Reply> {
        let task =
            self.tasks.get(self.started % self.tasks.len().max(1)).context("there are no goals")?.clone();
        let mut environment = self.set.webshop();
        environment.reset(&task, Seed::derive(0, Purpose::Environment, &[]))?;
        self.started += 1;
        self.open.insert(self.started, Visit { environment, task, steps: 0, note: None, ended: false });
        if self.open.len() > VISITS {
            self.open.pop_first();
        }
        Ok(Reply::see(format!("/visit/{}", self.started)))
    }

    fn show(&self, number: usize) -> anyhow::Result<Reply> {
        let Some(visit) = self.open.get(&number) else {
            return Ok(Reply::page(404, message("This visit is over.")));
        };
        let session = visit.environment.session().context("the visit has not begun")?;
        let status = format!("{}, step {} of {}", visit.task.id, visit.steps, self.set.max_steps());
        Ok(Reply::page(200, html::page(&session.view()?, &status, visit.note.as_deref(), visit.ended)))
    }

    fn act(&mut self, number: usize, request: &Request) -> anyhow::Result<Reply> {
        let Some(visit) = self.open.get_mut(&number) else {
            return Ok(Reply::page(404, message("This visit is over.")));
        };
        let action = match (request.field("search"), request.field("action")) {
            (Some(words), _) => format!("search[{words}]"),
            (None, Some(action)) => action,
            (None, None) => String::new(),
        };
        if !visit.ended {
            let step = visit.environment.step(&Action::from(&action))?;
            visit.steps += 1;
            visit.ended = step.terminated || step.truncated;
            visit.note = if step.terminated {
                let score = visit.environment.score().map_or(0.0, |score| score.total());
                let stand_in = visit.environment.score().is_some_and(|score| score.kind.type_stand_in);
                let kind = if stand_in { " (the type of the product is judged by a stand-in)" } else { "" };
                Some(format!("Score {score:.3}{kind}."))
            } else if step.truncated {
                Some("The episode ended at the step limit; nothing was bought.".to_owned())
            } else {
                (!step.understood).then(|| format!("`{action}` does nothing here."))
            };
        }
        Ok(Reply::see(format!("/visit/{number}")))
    }
}
