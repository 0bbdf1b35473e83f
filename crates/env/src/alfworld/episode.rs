use std::sync::Arc;

use super::command::Command;
use super::game::{Condition, Game, ObjectId, ReceptacleId, has, members, put, trait_bit};

const NOTHING: &str = "Nothing happens.";

const HELP: &str = "\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
";

/// Result of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Whether the command was admissible.
    pub understood: bool,
    /// Whether the goal is reached.
    pub won: bool,
    /// [`Episode::progress`] afterwards.
    pub progress: f64,
}

/// Episode of a game, without a step limit.
#[derive(Clone, Debug)]
pub struct Episode {
    game: Arc<Game>,
    pub(super) words: Vec<u64>,
    pub(super) place: u16,
    pub(super) holding: Option<u16>,
    pub(super) steps: u32,
    pub(super) observation: String,
    won: bool,
    progress: f64,
}

impl Episode {
    /// Starts a game.
    pub fn new(game: Arc<Game>) -> Self {
        let world = &game.world;
        let receptacles = (0..world.layout.receptacles).map(|index| world.receptacle_name(index));
        let observation = format!(
            "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, \
             you see {}.\n\nYour task is to: {}",
            list(receptacles),
            game.sentence
        );
        let mut episode = Self {
            words: world.initial.to_vec(),
            place: world.start,
            holding: None,
            steps: 0,
            observation,
            won: false,
            progress: 0.0,
            game,
        };
        episode.measure();
        episode
    }

    /// Resumes an episode from its saved state, which must fit the game.
    pub(super) fn resume(
        game: Arc<Game>,
        words: Vec<u64>,
        place: u16,
        holding: Option<u16>,
        steps: u32,
        observation: String,
    ) -> Self {
        let mut episode = Self { game, words, place, holding, steps, observation, won: false, progress: 0.0 };
        episode.measure();
        episode
    }

    /// Returns the game.
    pub fn game(&self) -> &Arc<Game> {
        &self.game
    }

    /// Returns the introduction before the first command, then the feedback to the last command.
    pub fn observation(&self) -> &str {
        &self.observation
    }

    /// Returns the number of commands so far, admissible or not.
    pub fn steps(&self) -> usize {
        self.steps as usize
    }

    /// Returns true if the goal is reached.
    pub fn won(&self) -> bool {
        self.won
    }

    /// Returns the progress in `[0, 1]`, which is 1 only at the goal. The original has no progress
    /// measure.
    ///
    /// Progress is the fraction of the conditions that hold, for the object or receptacle that
    /// meets the most. The conditions depend on the task type:
    /// * put (2 conditions): the object is in hand or in the target; the object is in the target.
    /// * clean, heat, cool (3 conditions): the object is treated; it is in hand or in the target;
    ///   it is treated and in the target.
    /// * look (3 conditions): the object is in hand; a lamp is on; a lamp that is on is at the
    ///   agent's place.
    /// * put two (4 points): two points for each wanted object in the same receptacle, and one for
    ///   another wanted object in hand.
    pub fn progress(&self) -> f64 {
        self.progress
    }

    /// Returns the object in hand.
    pub fn holding(&self) -> Option<ObjectId> {
        self.holding.map(ObjectId)
    }

    /// Returns the receptacles at the agent's place (none at the start).
    pub(crate) fn receptacles_here(&self) -> impl Iterator<Item = ReceptacleId> {
        self.here().iter().copied().map(ReceptacleId)
    }

    /// Returns all objects in a receptacle, in the order of [`Game::objects`].
    pub fn contents(&self, receptacle: ReceptacleId) -> impl Iterator<Item = ObjectId> {
        let layout = self.game.world.layout;
        let base = layout.contents(receptacle.index());
        members(&self.words[base..base + layout.words]).map(ObjectId)
    }

    /// Returns true if the receptacle has an open door.
    pub fn is_open(&self, receptacle: ReceptacleId) -> bool {
        has(&self.words, self.game.world.layout.opened(), receptacle.index())
    }

    /// Returns true unless a closed door blocks the receptacle.
    pub(crate) fn is_accessible(&self, receptacle: ReceptacleId) -> bool {
        !self.game.is_openable(receptacle) || self.is_open(receptacle)
    }

    /// Returns true if the object was cleaned.
    pub(crate) fn is_clean(&self, object: ObjectId) -> bool {
        self.is(object, Condition::Clean)
    }

    /// Returns true if the object is hot.
    pub(crate) fn is_hot(&self, object: ObjectId) -> bool {
        self.is(object, Condition::Hot)
    }

    /// Returns true if the object is cool.
    pub(crate) fn is_cool(&self, object: ObjectId) -> bool {
        self.is(object, Condition::Cool)
    }

    /// Returns true if the object was sliced.
    pub(crate) fn is_sliced(&self, object: ObjectId) -> bool {
        self.is(object, Condition::Sliced)
    }

    /// Returns true if the object was switched on.
    pub(crate) fn is_toggled(&self, object: ObjectId) -> bool {
        self.is(object, Condition::Toggled)
    }

    pub(super) fn here(&self) -> &[u16] {
        self.game.world.at_place(usize::from(self.place))
    }

    /// Executes a command. An inadmissible command changes only the number of steps and the
    /// feedback.
    pub fn step(&mut self, action: &str) -> StepOutcome {
        let command = Command::parse(&self.game, action).filter(|&command| self.admits(command));
        self.steps = self.steps.saturating_add(1);
        if let Some(command) = command {
            self.apply(command);
            self.observation = self.feedback(command);
        } else {
            self.observation.clear();
            self.observation.push_str(NOTHING);
        }
        self.measure();
        StepOutcome { understood: command.is_some(), won: self.won, progress: self.progress }
    }

    fn measure(&mut self) {
        let (layout, goal) = (self.game.world.layout, &self.game.goal);
        let (won, progress) = goal.measure(layout, &self.words, self.here(), self.holding);
        (self.won, self.progress) = (won, progress);
    }

    fn apply(&mut self, command: Command) {
        let game = &self.game;
        let layout = game.world.layout;
        let words = &mut self.words;
        let at = layout.at(usize::from(self.place));
        match command {
            Command::GoTo(receptacle) => self.place = game.world.place_of(receptacle.index()),
            Command::Open(receptacle) => put(words, layout.opened(), receptacle.index(), true),
            Command::Close(receptacle) => put(words, layout.opened(), receptacle.index(), false),
            Command::Take(object, receptacle) => {
                put(words, layout.contents(receptacle.index()), object.index(), false);
                put(words, layout.taken(receptacle.index()), object.index(), true);
                put(words, at, object.index(), false);
                self.holding = Some(object.0);
            }
            Command::Move(object, receptacle) => {
                put(words, layout.contents(receptacle.index()), object.index(), true);
                put(words, layout.taken(receptacle.index()), object.index(), false);
                put(words, at, object.index(), true);
                self.holding = None;
            }
            Command::Clean(object, _) => {
                put(words, layout.condition(Condition::Clean), object.index(), true);
            }
            Command::Heat(object, _) => {
                put(words, layout.condition(Condition::Hot), object.index(), true);
                put(words, layout.condition(Condition::Cool), object.index(), false);
            }
            Command::Cool(object, _) => {
                put(words, layout.condition(Condition::Cool), object.index(), true);
                put(words, layout.condition(Condition::Hot), object.index(), false);
            }
            Command::Use(object) => put(words, layout.condition(Condition::Toggled), object.index(), true),
            Command::Slice(object, _) => {
                put(words, layout.condition(Condition::Sliced), object.index(), true);
            }
            Command::ExamineObject(_)
            | Command::ExamineReceptacle(_)
            | Command::Help
            | Command::Inventory
            | Command::Look => {}
        }
    }

    fn feedback(&self, command: Command) -> String {
        let o = |object: ObjectId| self.game.object_name(object);
        let r = |receptacle: ReceptacleId| self.game.receptacle_name(receptacle);
        match command {
            Command::GoTo(receptacle) => {
                format!("You arrive at {}. {}", r(receptacle), self.describe(receptacle))
            }
            Command::Open(receptacle) => {
                format!("You open the {}. {}", r(receptacle), self.describe(receptacle))
            }
            Command::Close(receptacle) => format!("You close the {}.", r(receptacle)),
            Command::Take(object, receptacle) => {
                format!("You pick up the {} from the {}.", o(object), r(receptacle))
            }
            Command::Move(object, receptacle) => {
                format!("You move the {} to the {}.", o(object), r(receptacle))
            }
            Command::Clean(object, receptacle) => {
                format!("You clean the {} using the {}.", o(object), r(receptacle))
            }
            Command::Heat(object, receptacle) => {
                format!("You heat the {} using the {}.", o(object), r(receptacle))
            }
            Command::Cool(object, receptacle) => {
                format!("You cool the {} using the {}.", o(object), r(receptacle))
            }
            Command::Slice(object, knife) => format!("You sliced the {} with the {}.", o(object), o(knife)),
            Command::Use(object) => format!("You turn on the {}.", o(object)),
            Command::Inventory => match self.holding {
                Some(object) => format!("You are carrying: a {}.", o(ObjectId(object))),
                None => "You are not carrying anything.".into(),
            },
            Command::ExamineReceptacle(receptacle) => self.describe(receptacle),
            Command::ExamineObject(object) => self.inspect(object),
            Command::Look => self.look(),
            Command::Help => HELP.into(),
        }
    }

    fn describe(&self, receptacle: ReceptacleId) -> String {
        let name = self.game.receptacle_name(receptacle);
        let contents = || list(self.contents(receptacle).map(|object| self.game.object_name(object)));
        match (self.game.is_openable(receptacle), self.is_open(receptacle)) {
            (true, true) => format!("The {name} is open. In it, you see {}.", contents()),
            (true, false) => format!("The {name} is closed."),
            (false, _) => format!("On the {name}, you see {}.", contents()),
        }
    }

    /// Describes an object. As in the original, a vessel is always described as normal, even a
    /// clean mug.
    fn inspect(&self, object: ObjectId) -> String {
        let world = &self.game.world;
        let name = self.game.object_name(object);
        if world.object_is(object.index(), trait_bit::VESSEL) {
            let nested = world.nested.iter().filter(|(outer, _)| *outer == object.0);
            let inner = nested.map(|&(_, inner)| world.object_name(usize::from(inner)));
            return format!("This is a normal {name}. In it, you see {}.", list(inner));
        }
        let (clean, sliced) = (self.is_clean(object), self.is_sliced(object));
        let heat = match (self.is_hot(object), self.is_cool(object)) {
            (true, _) => Some("hot"),
            (false, true) => Some("cool"),
            (false, false) => None,
        };
        let state = match (heat, clean, sliced) {
            (Some(heat), true, true) => format!("{heat} and clean sliced"),
            (None, true, true) => "clean sliced".into(),
            (Some(heat), false, true) => format!("{heat} sliced"),
            (Some(heat), true, false) => format!("{heat} and clean"),
            (Some("cool"), false, false) => "cold".into(),
            (Some(heat), false, false) => heat.into(),
            (None, true, false) => "clean".into(),
            (None, false, _) if self.is_toggled(object) => return format!("This {name} is on."),
            (None, false, true) => "sliced".into(),
            (None, false, false) => return format!("There's nothing special about {name}."),
        };
        format!("This is a {state} {name}.")
    }

    /// Describes the agent's surroundings. After "Next to it" come the objects that were taken from
    /// a receptacle at this place and not put back.
    fn look(&self) -> String {
        let world = &self.game.world;
        let layout = world.layout;
        if self.here().is_empty() {
            return "You are in the middle of a room. Looking quickly around you, you see nothing.".into();
        }
        let facing =
            join(self.receptacles_here().map(|receptacle| self.game.receptacle_name(receptacle)), "");
        let at = layout.at(usize::from(self.place));
        let beside = members(&self.words[at..at + layout.words]).flat_map(|object| {
            let taken = move |&&receptacle: &&u16| {
                has(&self.words, layout.taken(usize::from(receptacle)), usize::from(object))
            };
            let times = self.here().iter().filter(taken).count();
            std::iter::repeat_n(world.object_name(usize::from(object)), times)
        });
        format!("You are facing the {facing}. Next to it, you see {}.", list(beside))
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let text = join(names, "a ");
    if text.is_empty() { "nothing".into() } else { text }
}

fn join<'a>(names: impl Iterator<Item = &'a str>, article: &str) -> String {
    let mut names = names.peekable();
    let mut text = String::new();
    let mut first = true;
    while let Some(name) = names.next() {
        if !first {
            text.push_str(if names.peek().is_some() { ", " } else { ", and " });
        }
        first = false;
        text.push_str(article);
        text.push_str(name);
    }
    text
}
