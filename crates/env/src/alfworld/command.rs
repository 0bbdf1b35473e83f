use super::episode::Episode;
use super::game::{Condition, Game, ObjectId, ReceptacleId, World, has, members, trait_bit};

/// A parsed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `clean O with R`
    Clean(ObjectId, ReceptacleId),
    /// `close R`
    Close(ReceptacleId),
    /// `cool O with R`
    Cool(ObjectId, ReceptacleId),
    /// `examine O`
    ExamineObject(ObjectId),
    /// `examine R`
    ExamineReceptacle(ReceptacleId),
    /// `go to R`
    GoTo(ReceptacleId),
    /// `heat O with R`
    Heat(ObjectId, ReceptacleId),
    /// `help`
    Help,
    /// `inventory`
    Inventory,
    /// `look`
    Look,
    /// `move O to R`
    Move(ObjectId, ReceptacleId),
    /// `open R`
    Open(ReceptacleId),
    /// `slice O with K`
    Slice(ObjectId, ObjectId),
    /// `take O from R`
    Take(ObjectId, ReceptacleId),
    /// `use O`
    Use(ObjectId),
}

impl Command {
    /// Parses a command, even if it is inadmissible in the current state ([`Episode::admits`]).
    pub fn parse(game: &Game, text: &str) -> Option<Self> {
        let world = &game.world;
        let text = strip(text);
        let object = |name: &str| world.find_object(name).map(|index| ObjectId(index as u16));
        let receptacle = |name: &str| world.find_receptacle(name).map(|index| ReceptacleId(index as u16));
        let pair = |text: &str, between: &str| {
            let (first, second) = text.split_once(between)?;
            Some((object(first)?, receptacle(second)?))
        };
        let (verb, rest) = match text {
            "help" => return Some(Self::Help),
            "inventory" => return Some(Self::Inventory),
            "look" => return Some(Self::Look),
            _ => text.split_once(' ')?,
        };
        Some(match verb {
            "clean" => pair(rest, " with ").map(|(o, r)| Self::Clean(o, r))?,
            "close" => Self::Close(receptacle(rest)?),
            "cool" => pair(rest, " with ").map(|(o, r)| Self::Cool(o, r))?,
            "examine" => match receptacle(rest) {
                Some(r) => Self::ExamineReceptacle(r),
                None => Self::ExamineObject(object(rest)?),
            },
            "go" => Self::GoTo(receptacle(rest.strip_prefix("to ")?)?),
            "heat" => pair(rest, " with ").map(|(o, r)| Self::Heat(o, r))?,
            "move" => pair(rest, " to ").map(|(o, r)| Self::Move(o, r))?,
            "open" => Self::Open(receptacle(rest)?),
            "slice" => {
                let (what, knife) = rest.split_once(" with ")?;
                Self::Slice(object(what)?, object(knife)?)
            }
            "take" => pair(rest, " from ").map(|(o, r)| Self::Take(o, r))?,
            "use" => Self::Use(object(rest)?),
            _ => return None,
        })
    }

    /// Returns the command's text.
    pub fn text(self, game: &Game) -> String {
        let world = &game.world;
        let o = |object: ObjectId| world.object_name(object.index());
        let r = |receptacle: ReceptacleId| world.receptacle_name(receptacle.index());
        match self {
            Self::Clean(object, receptacle) => join(["clean ", o(object), " with ", r(receptacle)]),
            Self::Close(receptacle) => join(["close ", r(receptacle)]),
            Self::Cool(object, receptacle) => join(["cool ", o(object), " with ", r(receptacle)]),
            Self::ExamineObject(object) => join(["examine ", o(object)]),
            Self::ExamineReceptacle(receptacle) => join(["examine ", r(receptacle)]),
            Self::GoTo(receptacle) => join(["go to ", r(receptacle)]),
            Self::Heat(object, receptacle) => join(["heat ", o(object), " with ", r(receptacle)]),
            Self::Help => "help".into(),
            Self::Inventory => "inventory".into(),
            Self::Look => "look".into(),
            Self::Move(object, receptacle) => join(["move ", o(object), " to ", r(receptacle)]),
            Self::Open(receptacle) => join(["open ", r(receptacle)]),
            Self::Slice(object, knife) => join(["slice ", o(object), " with ", o(knife)]),
            Self::Take(object, receptacle) => join(["take ", o(object), " from ", r(receptacle)]),
            Self::Use(object) => join(["use ", o(object)]),
        }
    }
}

fn join<const N: usize>(parts: [&str; N]) -> String {
    let mut text = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        text.push_str(part);
    }
    text
}

/// Trims like Python's `str.strip`, which also removes the separators U+001C to U+001F.
fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}

impl Episode {
    /// Returns true if the command is admissible in the current state.
    pub(crate) fn admits(&self, command: Command) -> bool {
        let world = &self.game().world;
        let here = |receptacle: ReceptacleId| world.place_of(receptacle.index()) == self.place;
        let held = |object: ObjectId| self.holding == Some(object.0);
        let treats = |object: ObjectId, receptacle: ReceptacleId, able: u16, tool: u16| {
            held(object)
                && here(receptacle)
                && world.object_is(object.index(), able)
                && world.receptacle_is(receptacle.index(), tool)
        };
        match command {
            Command::Help | Command::Inventory | Command::Look => true,
            Command::GoTo(receptacle) => !here(receptacle),
            Command::ExamineReceptacle(receptacle) => here(receptacle),
            Command::ExamineObject(object) => held(object),
            Command::Open(receptacle) => {
                here(receptacle) && self.game().is_openable(receptacle) && !self.is_open(receptacle)
            }
            Command::Close(receptacle) => {
                here(receptacle) && self.game().is_openable(receptacle) && self.is_open(receptacle)
            }
            Command::Take(object, receptacle) => {
                self.holding.is_none()
                    && here(receptacle)
                    && self.is_accessible(receptacle)
                    && self.game().is_pickupable(object)
                    && has(&self.words, world.layout.contents(receptacle.index()), object.index())
            }
            Command::Move(object, receptacle) => {
                held(object)
                    && here(receptacle)
                    && self.is_accessible(receptacle)
                    && self.game().accepts(receptacle, object)
            }
            Command::Clean(object, receptacle) => {
                treats(object, receptacle, trait_bit::CLEANABLE, trait_bit::CLEANS)
            }
            Command::Heat(object, receptacle) => {
                treats(object, receptacle, trait_bit::HEATABLE, trait_bit::HEATS)
            }
            Command::Cool(object, receptacle) => {
                treats(object, receptacle, trait_bit::COOLABLE, trait_bit::COOLS)
            }
            // As in the original, the receptacle may be closed.
            Command::Use(object) => {
                self.game().is_toggleable(object)
                    && self.here().iter().any(|&receptacle| {
                        has(&self.words, world.layout.contents(usize::from(receptacle)), object.index())
                    })
            }
            // As in the original, closed doors do not matter.
            Command::Slice(object, knife) => {
                held(knife)
                    && world.object_is(knife.index(), trait_bit::KNIFE)
                    && world.object_is(object.index(), trait_bit::SLICEABLE)
                    && has(&self.words, world.layout.at(usize::from(self.place)), object.index())
            }
        }
    }

    /// Returns all admissible commands in the byte order of their texts.
    pub fn commands(&self) -> Vec<Command> {
        let world = &self.game().world;
        let near = self.here_by_name(world);
        let held = self.holding.map(ObjectId);
        let mut list = Vec::with_capacity(world.layout.receptacles + 16);

        let treat = |list: &mut Vec<Command>, command: fn(ObjectId, ReceptacleId) -> Command| {
            if let Some(object) = held {
                let all = near.iter().map(|&receptacle| command(object, ReceptacleId(receptacle)));
                list.extend(all.filter(|&command| self.admits(command)));
            }
        };
        let each = |list: &mut Vec<Command>, command: fn(ReceptacleId) -> Command| {
            let all = near.iter().map(|&receptacle| command(ReceptacleId(receptacle)));
            list.extend(all.filter(|&command| self.admits(command)));
        };

        treat(&mut list, Command::Clean);
        each(&mut list, Command::Close);
        treat(&mut list, Command::Cool);

        let rank = |receptacle: u16| world.rank[usize::from(receptacle)];
        let held_rank = held.map(|object| world.rank[world.layout.receptacles + object.index()]);
        let split = near.partition_point(|&receptacle| Some(rank(receptacle)) < held_rank);
        let examine = |&receptacle: &u16| Command::ExamineReceptacle(ReceptacleId(receptacle));
        list.extend(near[..split].iter().map(examine));
        list.extend(held.map(Command::ExamineObject));
        list.extend(near[split..].iter().map(examine));

        for &receptacle in &world.receptacles_by_name {
            if world.place_of(usize::from(receptacle)) != self.place {
                list.push(Command::GoTo(ReceptacleId(receptacle)));
            }
        }
        treat(&mut list, Command::Heat);
        list.extend([Command::Help, Command::Inventory, Command::Look]);
        treat(&mut list, Command::Move);
        each(&mut list, Command::Open);

        let mut found: Vec<(u16, u16)> = Vec::new();
        if let Some(knife) = held.filter(|knife| world.object_is(knife.index(), trait_bit::KNIFE)) {
            let at = world.layout.at(usize::from(self.place));
            self.ranked(world, at, trait_bit::SLICEABLE, &mut found);
            found.sort_unstable();
            list.extend(found.drain(..).map(|(_, object)| Command::Slice(ObjectId(object), knife)));
        }
        if held.is_none() {
            let mut takes: Vec<(u16, u16, u16)> = Vec::new();
            for &receptacle in &near {
                if self.is_accessible(ReceptacleId(receptacle)) {
                    let contents = world.layout.contents(usize::from(receptacle));
                    self.ranked(world, contents, trait_bit::PICKUPABLE, &mut found);
                    takes.extend(found.drain(..).map(|(rank, object)| (rank, object, receptacle)));
                }
            }
            // Stable, so an object's receptacles stay in name order.
            takes.sort_by_key(|&(rank, ..)| rank);
            let take = |(_, object, receptacle)| Command::Take(ObjectId(object), ReceptacleId(receptacle));
            list.extend(takes.into_iter().map(take));
        }
        for &receptacle in &near {
            let contents = world.layout.contents(usize::from(receptacle));
            self.ranked(world, contents, trait_bit::TOGGLEABLE, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        list.extend(found.into_iter().map(|(_, object)| Command::Use(ObjectId(object))));
        list
    }

    /// Returns the texts of [`Self::commands`].
    pub fn admissible(&self) -> Vec<String> {
        let game = self.game();
        self.commands().into_iter().map(|command| command.text(game)).collect()
    }

    fn here_by_name(&self, world: &World) -> Vec<u16> {
        let mut near = self.here().to_vec();
        near.sort_unstable_by_key(|&receptacle| world.rank[usize::from(receptacle)]);
        near
    }

    fn ranked(&self, world: &World, base: usize, bit: u16, found: &mut Vec<(u16, u16)>) {
        let set = &self.words[base..base + world.layout.words];
        for object in members(set).filter(|&object| world.object_is(usize::from(object), bit)) {
            found.push((world.rank[world.layout.receptacles + usize::from(object)], object));
        }
    }

    pub(super) fn is(&self, object: ObjectId, condition: Condition) -> bool {
        has(&self.words, self.game().world.layout.condition(condition), object.index())
    }
}
