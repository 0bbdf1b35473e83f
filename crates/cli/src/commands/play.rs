//! `turnwise play`: a person plays in the terminal.

use std::cell::RefCell;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context as _, bail};
use clap::Args;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use turnwise_core::{Action, Environment, Metric, Observation, Purpose, Seed, Task, TaskSet};
use turnwise_env::alfworld::expert::Expert;
use turnwise_env::alfworld::generator::{GeneratorConfig, generate};
use turnwise_env::alfworld::{self, AlfworldSet, Prior};
use turnwise_env::webshop::{self, WebshopSet};

use super::env::{EnvironmentName, SizeName, load};

/// Play an environment yourself in the terminal.
#[derive(Args)]
pub(crate) struct PlayArgs {
    /// Which environment.
    environment: EnvironmentName,
    /// alfworld: official or generated games, as a folder, a game file or a `.tar.zst` archive; without it a world
    /// is generated. webshop: the folder of the official files; without it a catalogue is generated.
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    data: Option<PathBuf>,
    /// The split to play from [default: valid_unseen, or the first there is; webshop: test].
    #[arg(long)]
    split: Option<String>,
    /// The game's id, or a part of it that no other game has.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Picks the game; another number, another game. With --task (and for webshop) it is also the seed of
    /// the generated world.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How large the generated scene is.
    #[arg(long, value_enum, default_value_t)]
    size: SizeName,
    /// Steps until the episode ends.
    ///
    /// [default: 50 for alfworld, 15 for webshop]
    #[arg(long, value_name = "N")]
    max_steps: Option<usize>,
    /// Only for webshop: serve the shop as pages for a browser instead, at this address.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:3000")]
    web: Option<String>,
}

const HELP: &str = "\
  an action   is carried out and costs a step; Tab completes it, twice Tab lists what fits
  admissible  lists every action that would be understood now
  hint        what the expert would do, knowing only what has been seen so far
  help        this text (the world's own help costs a step: !help)
  quit        leaves
  !TEXT       sends TEXT to the world as it stands";

/// Plays one game.
pub(crate) fn run(args: PlayArgs) -> anyhow::Result<ExitCode> {
    if args.max_steps == Some(0) {
        bail!("--max-steps 0: an episode needs at least one step");
    }
    if let Some(address) = &args.web {
        if args.environment != EnvironmentName::Webshop {
            bail!("--web: only webshop has pages for a browser; leave the option out");
        }
        let set = shop(&args)?;
        let tasks = super::webshop::goals(&set, args.split.as_deref(), args.task.as_deref(), args.seed)?;
        super::web::serve(set, tasks, address)?;
        return Ok(ExitCode::SUCCESS);
    }
    let round = match args.environment {
        EnvironmentName::Alfworld => alfworld(args)?,
        EnvironmentName::Webshop => webshop(&args)?,
    };
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let stdout = std::io::stdout();
    let page = Page { out: stdout.lock(), styled: terminal && std::env::var_os("NO_COLOR").is_none() };
    if terminal {
        play(round, &mut Terminal::new()?, page)?;
    } else {
        play(round, &mut Piped(std::io::stdin().lock()), page)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One episode to play, whatever the environment.
struct Round {
    task: Task,
    environment: Box<dyn Environment>,
    max_steps: usize,
    /// Reads along, so that its advice fits whatever the person has done.
    advisor: Box<dyn Advisor>,
}

/// Says what it would do, knowing only what the person has seen.
trait Advisor {
    /// The next action after this observation.
    fn advise(&mut self, observation: &Observation) -> String;
}

impl Advisor for Expert<'_> {
    fn advise(&mut self, observation: &Observation) -> String {
        self.act(observation)
    }
}

fn alfworld(args: PlayArgs) -> anyhow::Result<Round> {
    let max_steps = args.max_steps.unwrap_or(alfworld::DEFAULT_MAX_STEPS);
    let set = world(&args)?.with_max_steps(max_steps);
    let id = choose(&set, args)?;
    let tasks = set.tasks(set.game(&id)?.split())?;
    let task = tasks.into_iter().find(|task| task.id == id);
    let task = task.with_context(|| format!("{id} is not in its split"))?;
    let mut environment = set.environment()?;
    let mut expert = Expert::new(Prior::embedded()?);
    let start = Seed::derive(0, Purpose::Environment, &[]);
    expert.reset(&environment.reset(&task, start)?.text(), &task.goal);
    Ok(Round { task, environment, max_steps, advisor: Box::new(expert) })
}

fn webshop(args: &PlayArgs) -> anyhow::Result<Round> {
    let set = shop(args)?;
    let max_steps = set.max_steps();
    let goals = super::webshop::goals(&set, args.split.as_deref(), args.task.as_deref(), args.seed)?;
    let task = goals.into_iter().next().context("the split is empty")?;
    let expert = webshop::Expert::new(&task.goal).with_max_steps(max_steps);
    let advisor: Box<dyn Advisor> = Box::new(Shopper(expert));
    Ok(Round { task, environment: set.environment()?, max_steps, advisor })
}

fn shop(args: &PlayArgs) -> anyhow::Result<WebshopSet> {
    let max_steps = args.max_steps.unwrap_or(webshop::DEFAULT_MAX_STEPS);
    Ok(super::webshop::shop(args.data.as_deref(), args.seed)?.with_max_steps(max_steps))
}

struct Shopper(webshop::Expert);

impl Advisor for Shopper {
    fn advise(&mut self, observation: &Observation) -> String {
        self.0.act(observation)
    }
}

/// Games from files, or generated: all of a world where one is asked for by name, else just enough.
fn world(args: &PlayArgs) -> anyhow::Result<AlfworldSet> {
    if let Some(path) = &args.data {
        return load(path);
    }
    let mut config =
        GeneratorConfig { seed: args.seed, size: args.size.into(), ..GeneratorConfig::default() };
    if args.task.is_none() {
        // One for each kind of task.
        let count = config.task_types.len();
        (config.train, config.valid_seen, config.valid_unseen) = (count, count, count);
    }
    Ok(generate(&config)?)
}

fn choose(set: &AlfworldSet, args: PlayArgs) -> anyhow::Result<String> {
    if let Some(wanted) = args.task {
        if set.game(&wanted).is_ok() {
            return Ok(wanted);
        }
        let inside =
            |game: &&str| args.split.as_deref().is_none_or(|split| game.starts_with(&format!("{split}/")));
        let found: Vec<&str> = set
            .iter()
            .map(|game| game.id())
            .filter(inside)
            .filter(|id| id.contains(wanted.as_str()))
            .collect();
        return match found.as_slice() {
            [] => {
                bail!("--task {wanted}: no game has this in its id; without --task one is picked by --seed")
            }
            [one] => Ok((*one).to_owned()),
            [first, second, ..] => {
                bail!(
                    "--task {wanted}: {} games have this in their id, for example {first} and {second}; write more of it",
                    found.len()
                )
            }
        };
    }
    let splits = set.splits();
    let default = splits.iter().find(|split| *split == "valid_unseen").or(splits.first());
    let split = args.split.as_ref().or(default).context("there are no games")?;
    let games = set.split(split)?;
    let game =
        Seed::derive(args.seed, Purpose::Tasks, &[]).rng().choose(games).context("the split is empty")?;
    Ok(game.id().to_owned())
}

/// Where lines come from.
trait Input {
    /// The next line; `None` at the end of the input. `actions` are completed.
    fn line(&mut self, prompt: &str, actions: &[String]) -> anyhow::Result<Option<String>>;
    /// Whether the person sees what was typed.
    fn echoes(&self) -> bool;
}

/// Lines from a file or another program.
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

/// A person at a terminal, with completion and history.
struct Terminal {
    editor: Editor<Actions, MemHistory>,
    actions: Rc<RefCell<Vec<String>>>,
}

impl Terminal {
    fn new() -> anyhow::Result<Self> {
        let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
        let mut editor =
            Editor::with_history(config, MemHistory::new()).context("cannot use the terminal")?;
        let actions = Rc::new(RefCell::new(Vec::new()));
        editor.set_helper(Some(Actions(Rc::clone(&actions))));
        Ok(Self { editor, actions })
    }
}

impl Input for Terminal {
    fn line(&mut self, prompt: &str, actions: &[String]) -> anyhow::Result<Option<String>> {
        *self.actions.borrow_mut() = actions.to_vec();
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(error) => Err(error).context("cannot read from the terminal"),
        }
    }

    fn echoes(&self) -> bool {
        true
    }
}

/// Completes a line to the actions that start with it.
struct Actions(Rc<RefCell<Vec<String>>>);

impl Completer for Actions {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = line.get(..pos).unwrap_or(line).trim_start();
        let actions = self.0.borrow();
        let fitting = actions.iter().filter(|action| action.starts_with(typed));
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

/// What the person reads.
struct Page<W> {
    out: W,
    styled: bool,
}

impl<W: Write> Page<W> {
    fn line(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{text}").context("cannot write to standard output")
    }

    fn dim(&mut self, text: &str) -> anyhow::Result<()> {
        let text = if self.styled { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() };
        self.line(&text)
    }

    fn bold(&mut self, text: &str) -> anyhow::Result<()> {
        let text = if self.styled { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
        self.line(&text)
    }

    /// The world's words; wrapped for people, as they are for programs.
    fn world(&mut self, text: &str) -> anyhow::Result<()> {
        let text = if self.styled { wrap(text, 88) } else { text.to_owned() };
        self.line(text.trim_end())
    }
}

/// Breaks lines at spaces.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let mut column = 0;
        for (index, word) in line.split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && column + 1 + length > width {
                out.push('\n');
                column = 0;
            } else if index > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
    }
    out
}

fn play<W: Write>(round: Round, input: &mut dyn Input, mut page: Page<W>) -> anyhow::Result<()> {
    let Round { task, mut environment, max_steps, mut advisor } = round;
    let mut observation = environment.reset(&task, Seed::derive(0, Purpose::Environment, &[]))?;
    let mut advice = advisor.advise(&observation);
    let mut taken = 0;
    page.dim(&format!("{}, {max_steps} steps", task.id))?;
    page.world(&observation.text())?;
    page.dim(
        "\nTab completes, `admissible` lists, `hint` asks the expert, `help` says more, `quit` leaves.",
    )?;
    loop {
        let prompt = format!("{}/{max_steps} > ", taken + 1);
        let Some(line) = input.line(&prompt, &observation.admissible)? else {
            page.line(&format!("\n{}", left(taken)))?;
            return Ok(());
        };
        let typed = line.trim();
        if !input.echoes() {
            page.line(&format!("{prompt}{typed}"))?;
        }
        let action = match typed {
            "" => continue,
            "quit" | "exit" => return page.line(&left(taken)),
            "help" => {
                page.line(HELP)?;
                continue;
            }
            "admissible" => {
                page.line(&columns(&observation.admissible))?;
                continue;
            }
            "hint" => {
                page.line(&format!("  the expert would: {advice}"))?;
                continue;
            }
            other => other.strip_prefix('!').unwrap_or(other).trim(),
        };
        let step = environment.step(&Action::from(action))?;
        page.world(&step.observation.text())?;
        if !step.understood {
            page.dim(&format!("  not understood{}", near(action, &observation)))?;
        }
        observation = step.observation;
        advice = advisor.advise(&observation);
        taken += 1;
        for Metric { name, value, .. } in &step.metrics {
            page.dim(&format!("  {name} {value:.3}"))?;
        }
        if step.success {
            return page.bold(&format!("\nSolved in {}.", steps(taken)));
        }
        if step.terminated || step.truncated {
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

/// For someone who mistyped: the action that starts and ends most like what was typed.
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
    // The first of the best.
    let best =
        observation.admissible.iter().rev().filter_map(|candidate| Some((alike(candidate)?, candidate)));
    match best.max_by_key(|(score, _)| *score) {
        Some((_, best)) => format!("; is `{best}` meant? Tab completes"),
        None => "; `admissible` lists what is".to_owned(),
    }
}

/// The actions in columns.
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
