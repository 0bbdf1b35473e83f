use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum as _};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use toml::{Table, Value};
use turnwise_core::{Action, Environment, Metric, Observation, Part, Purpose, Seed, Task, TaskSet};
use turnwise_env::pictures::png;
use turnwise_env::world::{Advisor, OpenOptions};
use turnwise_settings::assignment;

use super::arrows::{self, Arrows};
use super::env::SizeName;
use super::picture::Pictures;
use super::seed;
use crate::console::{self, Visible, visible, wrap};
use crate::worlds;

/// Play an environment in the terminal.
#[derive(Args)]
pub(crate) struct PlayArgs {
    /// Environment to play (`turnwise env list` lists them).
    environment: String,
    /// Settings of a config's [env] table, e.g. generator.size=small.
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Official data, same as data=PATH. alfworld: a folder of games, a game file or a `.tar.zst`
    /// archive; webshop: the folder with the official files [default: generated tasks].
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    data: Option<PathBuf>,
    /// Split to take the task from [default: the environment's last evaluation split].
    #[arg(long)]
    split: Option<String>,
    /// Task id, or a unique part of it.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Seed for picking the task and, if tasks are generated, for generating them.
    #[arg(long, default_value_t = 0, value_parser = seed)]
    seed: u64,
    /// Scene size of generated games (alfworld), same as generator.size=SIZE.
    #[arg(long, value_enum)]
    size: Option<SizeName>,
    /// Maximum number of turns per episode [default: the environment's default].
    #[arg(long, value_name = "N", alias = "max-steps")]
    max_turns: Option<usize>,
    /// How to show images, in environments that have them.
    #[arg(long, value_enum, default_value_t)]
    pictures: Pictures,
}

const HELP: &str = "\
  an action   is carried out and costs a step; Tab completes it, twice Tab lists what fits
  admissible  lists every action that would be understood now
  hint        what the expert would do now
  help        this text
  quit        leaves
  !TEXT       sends TEXT to the world as it stands";

#[expect(clippy::needless_pass_by_value, reason = "as every command")]
pub(crate) fn run(args: PlayArgs) -> anyhow::Result<ExitCode> {
    if args.max_turns == Some(0) {
        bail!("--max-turns 0: an episode needs at least one turn");
    }
    let registry = worlds::registry();
    let kind = registry.kind(&args.environment)?;
    let mut settings = match args.data {
        Some(_) => Table::new(),
        None => kind.play_settings(args.seed, args.task.is_some())?,
    };
    for (key, value) in overrides(&args)? {
        insert(&mut settings, &key, value);
    }
    let terminal = std::io::stdin().is_terminal() && console::stdout_is_terminal();
    let styled = terminal && std::env::var_os("NO_COLOR").is_none();
    let pictures = args.pictures.resolve(terminal, !styled);
    let draws = kind.schema()["properties"].get(DRAWN).is_some();
    if !draws && !matches!(args.pictures, Pictures::Auto | Pictures::Off) {
        bail!("--pictures: {} draws none; leave the option out", kind.name());
    }
    let mut folder = None;
    if draws && pictures != Pictures::Off && !settings.contains_key(DRAWN) {
        let made = tempfile::TempDir::new().context("cannot make a folder for pictures")?;
        settings.insert(DRAWN.to_owned(), Value::String(made.path().display().to_string()));
        folder = Some(made);
    }
    let drawn = settings.get(DRAWN).and_then(Value::as_str).map(PathBuf::from);
    let max_turns = args.max_turns.unwrap_or(kind.eval_defaults().max_turns);
    let mut note = |note: String| console::say(&note);
    let mut options = OpenOptions { splits: &[], max_turns, note: &mut note };
    let world = kind.open(&settings, &mut options)?;
    let mut tasks = choose(world.task_set(), kind.eval_defaults().splits, &args)?;
    let task = tasks.swap_remove(0);
    let round = Round {
        environment: world.task_set().environment()?,
        advisor: world.advisor(&task)?,
        // A task may have its own turn limit, as in rollouts.
        max_turns: task.limits.turns.map_or(max_turns, |_| task.limits.turns_within(max_turns)),
        task,
        help: kind.play_help().to_owned(),
    };
    let shown = drawn.filter(|_| draws && pictures != Pictures::Off).map(|folder| (folder, pictures));
    let page = Page { out: console::stdout(), styled, shown };
    if terminal {
        play(round, &mut Terminal::new()?, page)?;
    } else {
        play(round, &mut Piped(std::io::stdin().lock()), page)?;
    }
    drop(folder);
    Ok(ExitCode::SUCCESS)
}

const DRAWN: &str = "pictures";

struct Round {
    task: Task,
    environment: Box<dyn Environment>,
    max_turns: usize,
    /// Advises the player. Receives every observation, even if the player asks for no advice, so
    /// that later advice is valid.
    advisor: Option<Box<dyn Advisor>>,
    help: String,
}

fn overrides(args: &PlayArgs) -> anyhow::Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    if let Some(path) = &args.data {
        found.push(("data".to_owned(), Value::String(path.display().to_string())));
    }
    if let Some(size) = args.size {
        let name = size.to_possible_value().context("a size has a name")?;
        found.push(("generator.size".to_owned(), Value::String(name.get_name().to_owned())));
    }
    for text in &args.settings {
        let (key, value) = assignment(text).with_context(|| text.clone())?;
        found.push((key.to_owned(), value));
    }
    Ok(found)
}

fn insert(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((outer, inner)) => {
            let nested = table.entry(outer).or_insert_with(|| Value::Table(Table::new()));
            if !nested.is_table() {
                *nested = Value::Table(Table::new());
            }
            if let Value::Table(nested) = nested {
                insert(nested, inner, value);
            }
        }
    }
}

/// Returns the task whose id contains the requested text or, without such a request, the tasks of a
/// split, shuffled by the seed.
fn choose(set: &dyn TaskSet, usual: &[&str], args: &PlayArgs) -> anyhow::Result<Vec<Task>> {
    let splits = set.splits();
    if let Some(wanted) = &args.task {
        let mut found = Vec::new();
        for split in args.split.as_ref().map_or(splits.as_slice(), std::slice::from_ref) {
            for task in set.tasks(split)? {
                if task.id == *wanted {
                    return Ok(vec![task]);
                }
                if task.id.contains(wanted.as_str()) {
                    found.push(task);
                }
            }
        }
        return match found.as_slice() {
            [] => {
                bail!("--task {wanted}: no task has this in its id; without --task one is picked by --seed")
            }
            [_] => Ok(found),
            [first, second, ..] => bail!(
                "--task {wanted}: {} tasks have this in their id, for example {} and {}; write more of it",
                found.len(),
                first.id,
                second.id
            ),
        };
    }
    let default = usual.iter().rev().find(|usual| splits.iter().any(|split| split == **usual)).copied();
    let split = args.split.as_deref().or(default).or(splits.first().map(String::as_str));
    let mut tasks = set.tasks(split.context("there are no tasks")?)?;
    if tasks.is_empty() {
        bail!("the split `{}` is empty", split.unwrap_or_default());
    }
    Seed::derive(args.seed, Purpose::Tasks, &[]).rng().shuffle(&mut tasks);
    Ok(tasks)
}

trait Input {
    /// Returns the next line, or `None` at the end of the input; offers `actions` as completions.
    fn line(&mut self, prompt: &str, actions: &[String]) -> anyhow::Result<Option<String>>;
    fn echoes(&self) -> bool;
}

struct Piped<R>(R);

impl<R: BufRead> Input for Piped<R> {
    fn line(&mut self, _: &str, _: &[String]) -> anyhow::Result<Option<String>> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).context("cannot read from standard input")?;
        Ok((read > 0).then_some(line))
    }

    fn echoes(&self) -> bool {
        false
    }
}

struct Terminal {
    editor: Editor<Actions, MemHistory>,
    actions: Rc<RefCell<Vec<String>>>,
    arrows: Arrows,
}

impl Terminal {
    fn new() -> anyhow::Result<Self> {
        let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
        let mut editor =
            Editor::with_history(config, MemHistory::new()).context("cannot use the terminal")?;
        let actions = Rc::new(RefCell::new(Vec::new()));
        editor.set_helper(Some(Actions(Rc::clone(&actions))));
        let arrows = Arrows::default();
        arrows.bind(&mut editor);
        Ok(Self { editor, actions, arrows })
    }
}

impl Input for Terminal {
    fn line(&mut self, prompt: &str, actions: &[String]) -> anyhow::Result<Option<String>> {
        *self.actions.borrow_mut() = actions.to_vec();
        self.arrows.offer(actions);
        let read = self.editor.readline(prompt);
        match read {
            Ok(line) => Ok(Some(self.arrows.take().map_or(line, str::to_owned))),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(error) => Err(error).context("cannot read from the terminal"),
        }
    }

    fn echoes(&self) -> bool {
        true
    }
}

struct Actions(Rc<RefCell<Vec<String>>>);

impl Completer for Actions {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = line.get(..pos).unwrap_or(line).trim_start();
        let actions = self.0.borrow();
        let is_plain = |action: &String| matches!(visible(action), Cow::Borrowed(_));
        let fitting = actions.iter().filter(|action| action.starts_with(typed) && is_plain(action));
        let pair = |action: &String| Pair { display: action.clone(), replacement: action.clone() };
        Ok((0, fitting.map(pair).collect()))
    }
}

impl Hinter for Actions {
    type Hint = String;
}
impl Highlighter for Actions {}
impl Validator for Actions {}
impl Helper for Actions {}

struct Page<W> {
    out: Visible<W>,
    styled: bool,
    shown: Option<(PathBuf, Pictures)>,
}

const WRITE: &str = "cannot write to standard output";

impl<W: Write> Page<W> {
    fn line(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{text}").context(WRITE)
    }

    fn dim(&mut self, text: &str) -> anyhow::Result<()> {
        self.styled_line("\x1b[2m", text)
    }

    fn bold(&mut self, text: &str) -> anyhow::Result<()> {
        self.styled_line("\x1b[1m", text)
    }

    fn styled_line(&mut self, style: &str, text: &str) -> anyhow::Result<()> {
        if !self.styled {
            return self.line(text);
        }
        self.codes(style)?;
        write!(self.out, "{text}").context(WRITE)?;
        self.codes("\x1b[0m\n")
    }

    fn codes(&mut self, codes: &str) -> anyhow::Result<()> {
        self.out.codes(codes).context(WRITE)
    }

    fn observation(&mut self, observation: &Observation) -> anyhow::Result<()> {
        let Some((folder, pictures)) = &self.shown else { return self.world(&observation.text()) };
        let (mut drawn, pictures) = (String::new(), *pictures);
        for part in &observation.parts {
            if let Part::Image(handle) = part {
                let picture = png::read(&folder.join(format!("{}.png", handle.sha256)))?;
                drawn.push_str(&pictures.show(&picture));
            }
        }
        if drawn.is_empty() {
            return self.world(&observation.text());
        }
        self.codes(&drawn)?;
        self.line("")
    }

    fn world(&mut self, text: &str) -> anyhow::Result<()> {
        let text = if self.styled { wrap(text, 88) } else { text.to_owned() };
        self.line(text.trim_end())
    }
}

fn play<W: Write>(round: Round, input: &mut dyn Input, mut page: Page<W>) -> anyhow::Result<()> {
    let Round { task, mut environment, max_turns, mut advisor, help } = round;
    let mut observation = environment.reset(&task, Seed::derive(0, Purpose::Environment, &[]))?;
    let mut advise = |observation: &Observation| advisor.as_mut().map(|advisor| advisor.advise(observation));
    let mut advice = advise(&observation);
    let mut taken = 0;
    page.dim(&format!("{}, {max_turns} steps", task.id))?;
    page.observation(&observation)?;
    page.dim(
        "\nTab completes, `admissible` lists, `hint` asks the expert, `help` says more, `quit` leaves.",
    )?;
    loop {
        let prompt = format!("{}/{max_turns} > ", taken + 1);
        let Some(line) = input.line(&prompt, &observation.admissible)? else {
            page.line(&format!("\n{}", left(taken)))?;
            return Ok(());
        };
        let typed = arrows::of_line(&line, &observation.admissible).unwrap_or(line.trim());
        if !input.echoes() {
            page.line(&format!("{prompt}{typed}"))?;
        }
        let action = match typed {
            "" => continue,
            "quit" | "exit" => return page.line(&left(taken)),
            "help" => {
                page.line(HELP)?;
                if !help.is_empty() {
                    page.line(&help)?;
                }
                continue;
            }
            "admissible" => {
                page.line(&columns(&observation.admissible))?;
                continue;
            }
            "hint" => {
                page.line(&match &advice {
                    Some(advice) => format!("  the expert would: {advice}"),
                    None => "  this world has no expert".to_owned(),
                })?;
                continue;
            }
            other => other.strip_prefix('!').unwrap_or(other).trim(),
        };
        let step = environment.step(&Action::from(action))?;
        page.observation(&step.observation)?;
        if !step.understood {
            page.dim(&format!("  not understood{}", near(action, &observation)))?;
        }
        observation = step.observation;
        advice = advise(&observation);
        taken += 1;
        for Metric { name, value, .. } in &step.metrics {
            page.dim(&format!("  {name} {value:.3}"))?;
        }
        if step.success {
            return page.bold(&format!("\nSolved in {}.", steps(taken)));
        }
        if step.terminated || step.truncated || taken == max_turns {
            return page
                .bold(&format!("\nThe episode ended after {}; the task is not solved.", steps(taken)));
        }
    }
}

fn left(taken: usize) -> String {
    format!("Left after {}; the task is not solved.", steps(taken))
}

fn steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

fn near(action: &str, observation: &Observation) -> String {
    let typed = action.to_lowercase();
    let alike = |candidate: &String| {
        let start = typed.bytes().zip(candidate.bytes()).take_while(|(left, right)| left == right).count();
        let end = typed
            .bytes()
            .rev()
            .zip(candidate.bytes().rev())
            .take_while(|(left, right)| left == right)
            .count();
        (start >= 4).then_some(start + end)
    };
    // `max_by_key` returns the last maximum.
    let best =
        observation.admissible.iter().rev().filter_map(|candidate| Some((alike(candidate)?, candidate)));
    match best.max_by_key(|(score, _)| *score) {
        Some((_, best)) => format!("; is `{best}` meant? Tab completes"),
        None => "; `admissible` lists what is".to_owned(),
    }
}

fn columns(actions: &[String]) -> String {
    let width = actions.iter().map(|action| action.chars().count()).max().unwrap_or_default() + 3;
    let across = (96 / width).max(1);
    let down = actions.len().div_ceil(across).max(1);
    let rows = (0..down).map(|row| {
        let cells = actions.iter().skip(row).step_by(down).map(|action| format!("{action:<width$}"));
        format!("  {}", cells.collect::<String>().trim_end())
    });
    rows.collect::<Vec<_>>().join("\n")
}
