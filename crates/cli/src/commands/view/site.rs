use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::group_page::{self, Look};
use super::list_page::{Runs, short_hash, stamp_of};
use super::order::{Facts, order};
use super::pictures::Pictures;
use super::query::{Place, Query, decoded, encoded};
use super::source::{Source, Stamp};
use super::step::Step;
use super::step_page::{self, Neighbours};
use super::tokens::{Color, TokenTexts};
use super::{run_page, search};
use crate::commands::pages::html::{document_with, escape, message};
use crate::commands::pages::http::{Reply, Request};

pub(super) const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("viewer.js");

/// Maximum number of runs kept open, each with its last step in memory.
const KEPT: usize = 4;

/// Seconds between reloads of a live page without scripts.
const RELOAD: u32 = 15;

const MISSING: &str = "This page does not exist.";

pub(super) enum Site {
    One(Box<Pages>),
    Folder { runs: Runs, open: OpenRun, kept: Mutex<Vec<(String, Arc<Pages>)>> },
}

pub(super) type OpenRun = Box<dyn Fn(&Path) -> anyhow::Result<Source> + Send + Sync>;

impl Site {
    pub(super) fn folder(runs: Runs, open: OpenRun) -> Self {
        Self::Folder { runs, open, kept: Mutex::default() }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Self::One(pages) => pages.source.title(),
            Self::Folder { runs, .. } => runs.title(),
        }
    }

    pub(super) fn reply(&self, request: &Request) -> Reply {
        if request.method != "GET" {
            return Reply::page(405, message("Only GET is supported."));
        }
        let query = Query::parse(&request.query);
        let path: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
        let reply = match (self, path.as_slice()) {
            (_, ["viewer.js"]) => return Reply::script(SCRIPT),
            (Self::One(pages), path) => pages.reply(path, "", &query),
            (Self::Folder { runs, .. }, []) => list(runs, &query),
            (Self::Folder { runs, .. }, ["data.json"]) => Ok(Some(data(&runs.version()))),
            (Self::Folder { .. }, ["run", name, path @ ..]) => {
                let name = decoded(name);
                let base = format!("/run/{}", encoded(&name));
                self.of_run(&name).and_then(|pages| match pages {
                    Some(pages) => pages.reply(path, &base, &query),
                    None => Ok(None),
                })
            }
            (Self::Folder { .. }, _) => Ok(None),
        };
        match reply {
            Ok(Some(reply)) => reply,
            Ok(None) => Reply::page(404, message(MISSING)),
            Err(error) => Reply::page(500, message(&format!("{error:#}"))),
        }
    }

    fn of_run(&self, name: &str) -> anyhow::Result<Option<Arc<Pages>>> {
        let Self::Folder { runs, open, kept } = self else { return Ok(None) };
        let Some(folder) = runs.folder(name) else { return Ok(None) };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pages)) = kept.iter().find(|(known, _)| known == name) {
            return Ok(Some(Arc::clone(pages)));
        }
        let pages = Arc::new(Pages::new(open(&folder)?));
        kept.truncate(KEPT - 1);
        kept.insert(0, (name.to_owned(), Arc::clone(&pages)));
        Ok(Some(pages))
    }
}

fn list(runs: &Runs, query: &Query) -> anyhow::Result<Option<Reply>> {
    let place = Place { base: "", query };
    let (body, version) = runs.page(place)?;
    Ok(Some(page(&runs.title(), &body, Some(("/data.json", &version)))))
}

fn data(version: &str) -> Reply {
    Reply::json(serde_json::json!({ "version": version }).to_string())
}

/// Returns a page, which updates itself if `live` gives the URL and version of its data.
fn page(title: &str, body: &str, live: Option<(&str, &str)>) -> Reply {
    let mut head = String::from("<script src=\"/viewer.js\" defer></script>");
    let mut attributes = String::new();
    if let Some((data, version)) = live {
        head.push_str(&format!("<noscript><meta http-equiv=\"refresh\" content=\"{RELOAD}\"></noscript>"));
        attributes = format!(" data-live=\"{data}\" data-version=\"{version}\"");
    }
    let body = format!(
        "<main{attributes}>{body}</main><footer class=\"status\">keys: <kbd>j</kbd> <kbd>k</kbd> select, <kbd>enter</kbd> open, \
         <kbd>n</kbd> <kbd>p</kbd> next and previous page, <kbd>u</kbd> up, <kbd>/</kbd> search</footer>"
    );
    Reply::page(200, document_with(title, STYLE, &head, &body))
}

pub(super) struct Pages {
    source: Source,
    last: Mutex<Option<Arc<LastStep>>>,
    tokens: OnceLock<TokenTexts>,
    pictures: Pictures,
}

struct LastStep {
    stamp: Option<Stamp>,
    step: Step,
    facts: Vec<Facts>,
}

impl Pages {
    pub(super) fn new(source: Source) -> Self {
        let pictures = source.pictures();
        Self { source, last: Mutex::default(), tokens: OnceLock::new(), pictures }
    }

    fn reply(&self, path: &[&str], base: &str, query: &Query) -> anyhow::Result<Option<Reply>> {
        let place = Place { base, query };
        match path {
            [] => self.first(place),
            ["data.json"] => Ok(Some(data(&self.version()))),
            ["search"] => {
                let up = place.link("/", &[("q", ""), ("before", "")]);
                let title = self.source.title();
                let mut body = format!(
                    "<nav>{}<a rel=\"up\" href=\"{up}\">{}</a></nav>",
                    step_page::all_runs(place),
                    escape(&title)
                );
                body.push_str(&search::page(&self.source, place)?);
                Ok(Some(page(&format!("search in {title}"), &body, None)))
            }
            ["step", step] => step.parse().map_or(Ok(None), |step| self.step_page(step, place)),
            ["step", step, "first"] => step.parse().map_or(Ok(None), |step| self.first_group(step, place)),
            ["step", step, "group", group, rest @ ..] if matches!(rest, [] | ["open"]) => {
                match (step.parse(), group.parse()) {
                    (Ok(step), Ok(group)) => self.group_page(step, group, !rest.is_empty(), place),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn version(&self) -> String {
        let Source::Run { directory, .. } = &self.source else { return String::new() };
        let of = |file: &str| stamp_of(&directory.path(file));
        short_hash(&["metrics.jsonl", "status.json", "eval", "trajectories"].map(of).join(" "))
    }

    fn first(&self, place: Place<'_>) -> anyhow::Result<Option<Reply>> {
        if let (Source::Files(_), [only]) = (&self.source, self.source.steps().as_slice()) {
            return self.step_page(*only, place);
        }
        let links = match step_page::all_runs(place) {
            "" => String::new(),
            link => format!("<nav>{}</nav>", link.replacen("<a", "<a rel=\"up\"", 1)),
        };
        let version = self.version();
        let data = format!("{}/data.json", place.base);
        let live = matches!(self.source, Source::Run { .. }).then_some((data.as_str(), version.as_str()));
        let body = links + &run_page::page(&self.source, place)?;
        Ok(Some(page(&self.source.title(), &body, live)))
    }

    fn step_page(&self, number: u64, place: Place<'_>) -> anyhow::Result<Option<Reply>> {
        let Some(last) = self.step(number)? else { return Ok(None) };
        let mut body = step_page::links(&self.source, place, number, None);
        body.push_str(&step_page::head(&self.source, &last.step));
        body.push_str(&step_page::metrics(&self.source, number));
        body.push_str(&step_page::groups(&last.step, &last.facts, place));
        Ok(Some(page(&format!("{}, step {number}", self.source.title()), &body, None)))
    }

    /// Redirects to the first group in the sort order, which is by default the most instructive
    /// one.
    fn first_group(&self, number: u64, place: Place<'_>) -> anyhow::Result<Option<Reply>> {
        let Some(last) = self.step(number)? else { return Ok(None) };
        let first = order(&last.step, &last.facts, place.query).first().copied();
        let path = first.map_or(format!("/step/{number}"), |group| format!("/step/{number}/group/{group}"));
        Ok(Some(Reply::redirect(&place.address(&path, &[]))))
    }

    /// Returns a group's page; `open` expands all turns.
    fn group_page(
        &self,
        number: u64,
        group: usize,
        open: bool,
        place: Place<'_>,
    ) -> anyhow::Result<Option<Reply>> {
        let Some(last) = self.step(number)? else { return Ok(None) };
        let step = &last.step;
        if group >= step.groups.len() {
            return Ok(None);
        }
        let neighbours = Neighbours::of(group, &order(step, &last.facts, place.query), step.groups.len());
        let mut body = step_page::links(&self.source, place, number, Some(neighbours));
        body.push_str(&step_page::about(&self.source, step));
        let own = format!("/step/{number}/group/{group}");
        let (to, text) =
            if open { (own.clone(), "close all turns") } else { (format!("{own}/open"), "open all turns") };
        body.push_str(&format!("<p class=\"choice\"><a href=\"{}\">{text}</a>", place.link(&to, &[])));
        let tokens = self.tokens();
        let color = Color::named(place.query.get("color"));
        if tokens.is_some() {
            body.push_str("; tokens are coloured by ");
            let path = if open { format!("{own}/open") } else { own };
            for (known, name, words) in Color::ALL {
                let link = place.link(&path, &[("color", name)]);
                body.push_str(&if known == color {
                    format!("<b>{words}</b> ")
                } else {
                    format!("<a href=\"{link}\">{words}</a> ")
                });
            }
        }
        body.push_str("</p>");
        let look = Look { tokens, pictures: Some(&self.pictures), color, open };
        body.push_str(&group_page::group(step, group, look));
        body.push_str(&group_page::meanings(step.groups[group].iter()));
        let title = format!("{}, step {number}, group {group}", self.source.title());
        Ok(Some(page(&title, &body, None)))
    }

    fn tokens(&self) -> Option<&TokenTexts> {
        if self.tokens.get().is_none() {
            self.tokens.set(self.source.tokens()?).ok();
        }
        self.tokens.get()
    }

    /// Returns a step's trajectories, if any. The step is cached only while its file is unchanged,
    /// because a resumed run may rewrite it.
    fn step(&self, number: u64) -> anyhow::Result<Option<Arc<LastStep>>> {
        if !self.source.steps().contains(&number) {
            return Ok(None);
        }
        let stamp = self.source.stamp(number);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && (last.step.number, last.stamp) == (number, stamp)
        {
            return Ok(Some(Arc::clone(last)));
        }
        let step = self.source.step(number)?;
        let facts = step.groups.iter().map(|group| Facts::of(group)).collect();
        let step = Arc::new(LastStep { stamp, step, facts });
        *last = Some(Arc::clone(&step));
        Ok(Some(step))
    }
}
