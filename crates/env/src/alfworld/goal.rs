use std::fmt;

use super::game::{Condition, ObjectId, ReceptacleId, StateLayout, has, members};
use super::pddl::List;

/// Task types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskType {
    /// Put an object into a target receptacle.
    PickAndPlace,
    /// Hold an object near a lamp that is on.
    LookInLight,
    /// Clean an object and put it into a target receptacle.
    PickCleanThenPlace,
    /// Heat an object and put it into a target receptacle.
    PickHeatThenPlace,
    /// Cool an object and put it into a target receptacle.
    PickCoolThenPlace,
    /// Put two objects of a type into one receptacle.
    PickTwo,
}

impl TaskType {
    /// All task types, in report order.
    pub const ALL: [Self; 6] = [
        Self::PickAndPlace,
        Self::LookInLight,
        Self::PickCleanThenPlace,
        Self::PickHeatThenPlace,
        Self::PickCoolThenPlace,
        Self::PickTwo,
    ];

    /// Returns the official name (`pick_and_place_simple`).
    pub fn name(self) -> &'static str {
        match self {
            Self::PickAndPlace => "pick_and_place_simple",
            Self::LookInLight => "look_at_obj_in_light",
            Self::PickCleanThenPlace => "pick_clean_then_place_in_recep",
            Self::PickHeatThenPlace => "pick_heat_then_place_in_recep",
            Self::PickCoolThenPlace => "pick_cool_then_place_in_recep",
            Self::PickTwo => "pick_two_obj_and_place",
        }
    }

    pub(super) fn treatment(self) -> Option<Condition> {
        match self {
            Self::PickCleanThenPlace => Some(Condition::Clean),
            Self::PickHeatThenPlace => Some(Condition::Hot),
            Self::PickCoolThenPlace => Some(Condition::Cool),
            Self::PickAndPlace | Self::LookInLight | Self::PickTwo => None,
        }
    }
}

impl fmt::Display for TaskType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) task_type: TaskType,
    pub(super) object: String,
    pub(super) target: String,
}

impl Shape {
    /// Parses a goal. Unexpected atoms and variables are rejected, because ignoring them would make
    /// the goal easier.
    pub(super) fn read(goal: &List<'_>) -> Result<Self, String> {
        let mut atoms = Vec::new();
        collect(goal, &mut atoms)?;
        atoms.sort();
        let heads: Vec<&str> = atoms.iter().map(|atom| atom[0].as_str()).collect();
        let task_type = match heads.as_slice() {
            ["inreceptacle", "objecttype", "receptacletype"] => TaskType::PickAndPlace,
            ["cleanable", "inreceptacle", "isclean", "objecttype", "receptacletype"] => {
                TaskType::PickCleanThenPlace
            }
            ["heatable", "inreceptacle", "ishot", "objecttype", "receptacletype"] => {
                TaskType::PickHeatThenPlace
            }
            ["coolable", "inreceptacle", "iscool", "objecttype", "receptacletype"] => {
                TaskType::PickCoolThenPlace
            }
            [
                "inreceptacle",
                "inreceptacle",
                "not =",
                "objecttype",
                "objecttype",
                "receptacletype",
                "receptacletype",
            ] => TaskType::PickTwo,
            [
                "atlocation",
                "holds",
                "inreceptacle",
                "istoggled",
                "objecttype",
                "objecttype",
                "receptacleatlocation",
                "toggleable",
            ] => TaskType::LookInLight,
            _ => {
                return Err(format!(
                    "a goal made of [{}] is none of the six ALFWorld goals",
                    heads.join(", ")
                ));
            }
        };
        let shape = match task_type {
            TaskType::LookInLight => Self::lamp(&atoms),
            TaskType::PickTwo => Self::two(&atoms),
            _ => Self::one(&atoms, task_type),
        };
        shape
            .ok_or_else(|| format!("the goal looks like {task_type}, but its variables do not hang together"))
    }

    fn one(atoms: &[Vec<String>], task_type: TaskType) -> Option<Self> {
        let [object, receptacle] = arguments(atoms, "inreceptacle", 0)?;
        let [typed, object_type] = arguments(atoms, "objecttype", 0)?;
        let [placed, target] = arguments(atoms, "receptacletype", 0)?;
        let same = atoms.iter().filter(|atom| atom.len() == 2).all(|atom| atom[1] == object);
        (typed == object && placed == receptacle && same).then(|| Self {
            task_type,
            object: object_type.into(),
            target: target.into(),
        })
    }

    fn two(atoms: &[Vec<String>]) -> Option<Self> {
        let [first, receptacle] = arguments(atoms, "inreceptacle", 0)?;
        let [second, same] = arguments(atoms, "inreceptacle", 1)?;
        let [typed, object_type] = arguments(atoms, "objecttype", 0)?;
        let [also, also_type] = arguments(atoms, "objecttype", 1)?;
        let [place, target] = arguments(atoms, "receptacletype", 0)?;
        let [again, also_target] = arguments(atoms, "receptacletype", 1)?;
        let [left, right] = arguments(atoms, "not =", 0)?;
        let pair = |a, b| (a, b) == (first, second) || (a, b) == (second, first);
        (first != second && receptacle == same && pair(typed, also) && pair(left, right))
            .then_some(())
            .filter(|()| place == receptacle && again == receptacle)
            .filter(|()| object_type == also_type && target == also_target)
            .map(|()| Self {
                task_type: TaskType::PickTwo,
                object: object_type.into(),
                target: target.into(),
            })
    }

    fn lamp(atoms: &[Vec<String>]) -> Option<Self> {
        let [lamp, receptacle] = arguments(atoms, "inreceptacle", 0)?;
        let [agent, held] = arguments(atoms, "holds", 0)?;
        let [stands, place] = arguments(atoms, "receptacleatlocation", 0)?;
        let [walker, here] = arguments(atoms, "atlocation", 0)?;
        let types = [arguments(atoms, "objecttype", 0)?, arguments(atoms, "objecttype", 1)?];
        let of =
            |variable: &str| types.iter().find(|[name, _]| *name == variable).map(|[_, kind]| (*kind).into());
        let same = atoms.iter().filter(|atom| atom.len() == 2).all(|atom| atom[1] == lamp);
        // Each `exists` binds an agent, but there is only one.
        let together = stands == receptacle && place == here && !agent.is_empty() && !walker.is_empty();
        (lamp != held && together && same).then_some(())?;
        Some(Self { task_type: TaskType::LookInLight, object: of(held)?, target: of(lamp)? })
    }
}

fn arguments<'a>(atoms: &'a [Vec<String>], head: &str, nth: usize) -> Option<[&'a str; 2]> {
    let atom = atoms.iter().filter(|atom| atom[0] == head).nth(nth)?;
    let [_, first, second] = atom.as_slice() else { return None };
    Some([first, second])
}

/// Collects the atoms under `and` and `exists`. `(not (= a b))` becomes an atom with the name
/// `not =`.
fn collect(goal: &List<'_>, atoms: &mut Vec<Vec<String>>) -> Result<(), String> {
    let List::Items(items) = goal else { return Err("the goal has a word where a condition belongs".into()) };
    let Some(List::Word(head)) = items.first() else { return Err("the goal has an empty condition".into()) };
    let head = head.to_ascii_lowercase();
    match (head.as_str(), items.len()) {
        ("and", _) => items[1..].iter().try_for_each(|item| collect(item, atoms)),
        ("exists", 3) => collect(&items[2], atoms),
        ("not", 2) => {
            let before = atoms.len();
            collect(&items[1], atoms)?;
            match &mut atoms[before..] {
                [atom] => atom[0] = format!("not {}", atom[0]),
                _ => return Err("the goal negates more than one condition".into()),
            }
            Ok(())
        }
        ("exists" | "not" | "or" | "forall" | "imply" | "when", _) => {
            Err(format!("the goal uses `{head}` in a way that no ALFWorld goal does"))
        }
        _ => {
            let mut atom = vec![head];
            for item in &items[1..] {
                let List::Word(word) = item else {
                    return Err(format!("the goal's `{}` has a list for an argument", atom[0]));
                };
                atom.push(word.to_ascii_lowercase());
            }
            atoms.push(atom);
            Ok(())
        }
    }
}

/// Goal of a game, with the objects and receptacles that can satisfy it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    pub(super) task_type: TaskType,
    pub(super) object: Box<str>,
    pub(super) target: Box<str>,
    pub(super) objects: Box<[u64]>,
    pub(super) lamps: Box<[u64]>,
    pub(super) receptacles: Box<[u16]>,
}

impl Goal {
    /// Returns the task type.
    pub fn task_type(&self) -> TaskType {
        self.task_type
    }

    /// Returns the wanted object's type in lower case.
    pub fn object_type(&self) -> &str {
        &self.object
    }

    /// Returns the type of the target, which is a receptacle or a lamp.
    pub fn target_type(&self) -> &str {
        &self.target
    }

    /// Returns objects that can satisfy the goal.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        members(&self.objects).map(ObjectId)
    }

    /// Returns lamps that can satisfy the goal.
    pub fn lamps(&self) -> impl Iterator<Item = ObjectId> {
        members(&self.lamps).map(ObjectId)
    }

    /// Returns receptacles that can satisfy the goal.
    pub fn receptacles(&self) -> impl Iterator<Item = ReceptacleId> {
        self.receptacles.iter().copied().map(ReceptacleId)
    }

    pub(super) fn measure(
        &self,
        layout: StateLayout,
        state: &[u64],
        here: &[u16],
        holding: Option<u16>,
    ) -> (bool, f64) {
        let held = holding.filter(|&object| has(&self.objects, 0, usize::from(object)));
        let set = |base: usize| &state[base..base + layout.words];
        let (done, parts) = match self.task_type {
            TaskType::PickTwo => {
                let most = self.receptacles.iter().map(|&receptacle| {
                    let contents = set(layout.contents(usize::from(receptacle)));
                    let count: u32 =
                        (0..layout.words).map(|w| (contents[w] & self.objects[w]).count_ones()).sum();
                    // Do not count an object twice.
                    let other = held.filter(|&object| !has(contents, 0, usize::from(object)));
                    (2 * count + u32::from(other.is_some())).min(if count < 2 { 3 } else { 4 })
                });
                (most.max().unwrap_or(0), 4)
            }
            TaskType::LookInLight => {
                let toggled = set(layout.condition(Condition::Toggled));
                let on = |w: usize| toggled[w] & self.lamps[w];
                let lit = (0..layout.words).any(|w| on(w) != 0);
                let near = here.iter().any(|&receptacle| {
                    let contents = set(layout.contents(usize::from(receptacle)));
                    (0..layout.words).any(|w| contents[w] & on(w) != 0)
                });
                (u32::from(held.is_some()) + u32::from(lit) + u32::from(near), 3)
            }
            _ => {
                let treatment = self.task_type.treatment();
                let best = members(&self.objects).map(|object| {
                    let treated =
                        treatment.is_none_or(|what| has(state, layout.condition(what), usize::from(object)));
                    let placed = self.receptacles.iter().any(|&receptacle| {
                        has(state, layout.contents(usize::from(receptacle)), usize::from(object))
                    });
                    let obtained = placed || held == Some(object);
                    u32::from(treatment.is_some() && treated)
                        + u32::from(obtained)
                        + u32::from(placed && treated)
                });
                (best.max().unwrap_or(0), if treatment.is_some() { 3 } else { 2 })
            }
        };
        (done == parts, f64::from(done) / f64::from(parts))
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} / {}", self.task_type, self.object, self.target)
    }
}
