//! Pinned task panels: fixed task lists with a hash.
//!
//! Training and evaluation panels are disjoint. Tasks are sorted by hash, so a panel does not
//! depend on their order in files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use turnwise_core::{EnvError, Purpose, Seed, Task, TaskList, TaskSet, digest};

/// How a panel selects a split's tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Number of tasks; `None` for all.
    pub count: Option<usize>,
    /// Seed for selecting tasks at random; `None` selects the first tasks in hash order.
    pub seed: Option<u64>,
    /// Whether to take one task of each kind in turn, so that all kinds are equally frequent until
    /// one runs out.
    pub balanced: bool,
}

/// A fixed list of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Panel {
    /// Environment name.
    pub env: String,
    /// Split of the tasks.
    pub split: String,
    /// Tasks, sorted by a hash of their id, kind and goal.
    pub tasks: Vec<Task>,
    /// SHA-256, in hex, of the task ids and [`Task::content_digest`]s, each preceded by its length.
    pub hash: String,
}

impl Panel {
    /// Selects and hashes tasks of a split.
    ///
    /// # Errors
    /// Fails if the split cannot be read, has duplicate ids or has too few tasks.
    pub fn pin(set: &dyn TaskSet, split: &str, choice: Choice) -> Result<Self, EnvError> {
        let (mut tasks, there) = if let Some(list) = set.list(split)? {
            (listed(&*list, choice)?, list.len())
        } else {
            let tasks = sorted(set, split)?;
            let there = tasks.len();
            (tasks, there)
        };
        let count = choice.count.unwrap_or(there);
        if count > there {
            return Err(EnvError::Other(format!(
                "{count} tasks are asked for but the split `{split}` of {} has {there}; ask for at most that many",
                set.name()
            )));
        }
        if let Some(seed) = choice.seed {
            Seed::derive(seed, Purpose::Tasks, &[]).rng().shuffle(&mut tasks);
        }
        if choice.balanced {
            tasks = interleave(tasks);
        }
        tasks.truncate(count);
        Ok(Self::of(set.name(), split, tasks))
    }

    /// Creates a panel of the given tasks.
    pub fn of(env: &str, split: &str, mut tasks: Vec<Task>) -> Self {
        sort(&mut tasks);
        let hash = hash(&tasks);
        Self { env: env.to_owned(), split: split.to_owned(), tasks, hash }
    }

    /// Checks that two panels share no task. Tasks with equal content but different ids count as
    /// the same task.
    ///
    /// # Errors
    /// Fails if the panels share a task; the error names it.
    pub fn check_disjoint(&self, other: &Self) -> Result<(), EnvError> {
        if self.env != other.env {
            return Ok(());
        }
        let known: BTreeMap<String, &str> =
            self.tasks.iter().map(|task| (task.content_digest(), task.id.as_str())).collect();
        let ids: BTreeSet<&str> = self.tasks.iter().map(|task| task.id.as_str()).collect();
        let shared = other.tasks.iter().filter_map(|task| {
            let same = known.get(&task.content_digest()).copied();
            let own = same.or_else(|| ids.get(task.id.as_str()).copied())?;
            Some((own.to_owned(), task.id.clone()))
        });
        refuse_shared((&self.split, &other.split), &shared.collect::<Vec<_>>())
    }

    /// Checks that [`Self::hash`] matches the tasks.
    ///
    /// # Errors
    /// Fails if the panel was modified.
    pub(crate) fn check_hash(&self) -> Result<(), EnvError> {
        let found = hash(&self.tasks);
        if found == self.hash {
            return Ok(());
        }
        Err(EnvError::Other(format!(
            "the panel of `{}` was changed after it was pinned: its tasks have the hash {found}, it says {}; pin it anew",
            self.split, self.hash
        )))
    }

    /// Checks the panel's hash, and that the task set still contains the panel's tasks unchanged.
    ///
    /// # Errors
    /// Fails if the panel was modified, belongs to another environment, or has a missing or changed
    /// task.
    pub fn verify(&self, set: &dyn TaskSet) -> Result<(), EnvError> {
        self.check_hash()?;
        if self.env != set.name() {
            return Err(EnvError::Other(format!(
                "the panel was pinned for the environment `{}`, this is `{}`",
                self.env,
                set.name()
            )));
        }
        let list = set.list(&self.split)?;
        let tasks = if list.is_some() { Vec::new() } else { set.tasks(&self.split)? };
        let known: BTreeMap<&str, &Task> = tasks.iter().map(|task| (task.id.as_str(), task)).collect();
        for task in &self.tasks {
            let found = match &list {
                Some(list) => list.find(&task.id)?.map(Cow::Owned),
                None => known.get(task.id.as_str()).map(|found| Cow::Borrowed(*found)),
            };
            match found {
                Some(found) if *found == *task => {}
                Some(found) if found.goal == task.goal && found.kind == task.kind => {
                    return Err(EnvError::Other(format!(
                        "the content of task `{}` has changed since the panel was pinned, under the same name (its digest \
                         was {}, it is {}); the data are not the same",
                        task.id,
                        task.content_digest(),
                        found.content_digest()
                    )));
                }
                Some(found) => {
                    return Err(EnvError::Other(format!(
                        "task `{}` has changed since the panel was pinned: its goal was `{}` ({}), it is `{}` ({}); \
                         the data are not the same",
                        task.id, task.goal, task.kind, found.goal, found.kind
                    )));
                }
                None => {
                    return Err(EnvError::Other(format!(
                        "task `{}` of the panel is not in the split `{}` any more; the data are not the same",
                        task.id, self.split
                    )));
                }
            }
        }
        Ok(())
    }
}

/// All tasks of a split, with a hash.
#[derive(Clone)]
pub enum PinnedSplit {
    /// Tasks in memory.
    Panel(Panel),
    /// Tasks created on demand, for splits that are too large for memory.
    Listed {
        /// Environment name.
        env: String,
        /// Split name.
        split: String,
        /// The split's tasks.
        list: Arc<dyn TaskList>,
    },
}

impl PinnedSplit {
    /// Hashes all tasks of a split.
    ///
    /// # Errors
    /// Fails if the split cannot be read or has duplicate ids.
    pub fn pin(set: &dyn TaskSet, split: &str) -> Result<Self, EnvError> {
        Ok(match set.list(split)? {
            Some(list) => Self::Listed { env: set.name().to_owned(), split: split.to_owned(), list },
            None => Self::Panel(Panel::pin(set, split, Choice::default())?),
        })
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        match self {
            Self::Panel(panel) => panel.tasks.len(),
            Self::Listed { list, .. } => list.len(),
        }
    }

    /// Returns true for an empty split.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the hash, computed like [`Panel::hash`].
    pub fn hash(&self) -> &str {
        match self {
            Self::Panel(panel) => &panel.hash,
            Self::Listed { list, .. } => list.hash(),
        }
    }

    /// Checks that this split shares no task with a panel, as [`Panel::check_disjoint`] does.
    ///
    /// # Errors
    /// Fails if the split and the panel share a task; the error names it.
    pub fn check_disjoint(&self, panel: &Panel) -> Result<(), EnvError> {
        let (env, split, list) = match self {
            Self::Panel(own) => return panel.check_disjoint(own),
            Self::Listed { env, split, list } => (env, split, list),
        };
        if panel.env != *env {
            return Ok(());
        }
        let mut shared = Vec::new();
        for task in &panel.tasks {
            let digest = task.content_digest();
            for place in list.places_of(&digest) {
                let found = list.task(place)?;
                if found.content_digest() == digest {
                    shared.push((task.id.clone(), found.id));
                }
            }
            // The same name in both is the same task.
            if shared.last().is_none_or(|(own, _)| *own != task.id)
                && let Some(found) = list.find(&task.id)?
            {
                shared.push((task.id.clone(), found.id));
            }
        }
        refuse_shared((&panel.split, split), &shared)
    }
}

fn refuse_shared((split, other): (&str, &str), shared: &[(String, String)]) -> Result<(), EnvError> {
    let Some((task, also)) = shared.first() else { return Ok(()) };
    let also = if task == also { String::new() } else { format!(" (which `{other}` has as `{also}`)") };
    Err(EnvError::Other(format!(
        "the panels of `{split}` and `{other}` share {} tasks, for example `{task}`{also}; training and evaluation need \
         different tasks: choose another split or other counts",
        shared.len()
    )))
}

fn sorted(set: &dyn TaskSet, split: &str) -> Result<Vec<Task>, EnvError> {
    let mut tasks = set.tasks(split)?;
    sort(&mut tasks);
    let mut ids = BTreeSet::new();
    if let Some(doubled) = tasks.iter().find(|task| !ids.insert(&task.id)) {
        return Err(EnvError::Other(format!(
            "{} has the task `{}` twice in its split `{split}`; task ids must be unique",
            set.name(),
            doubled.id
        )));
    }
    Ok(tasks)
}

fn listed(list: &dyn TaskList, choice: Choice) -> Result<Vec<Task>, EnvError> {
    let first = if choice.seed.is_none() && !choice.balanced { choice.count } else { None };
    let order = list.panel_order();
    let order = &order[..first.unwrap_or(order.len()).min(order.len())];
    order.iter().map(|place| list.task(*place as usize)).collect()
}

fn sort(tasks: &mut [Task]) {
    tasks.sort_by_cached_key(|task| (rank(task), task.id.clone()));
}

/// Adds a text to the hash, preceded by its length, so that two different lists of texts never
/// produce the same bytes.
fn feed(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

/// Returns a task's sort key: a hash of its id, kind and goal, but not of its content. A task whose
/// content changes therefore keeps its position, and [`Panel::verify`] reports it as changed.
pub(crate) fn rank(task: &Task) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in [&task.id, &task.kind, &task.goal] {
        feed(&mut hash, text);
    }
    hash.finalize().into()
}

fn hash(tasks: &[Task]) -> String {
    digest(tasks.iter().flat_map(|task| [task.id.clone(), task.content_digest()]))
}

/// Reorders the tasks: the first task of each kind, then the second of each kind, and so on.
fn interleave(tasks: Vec<Task>) -> Vec<Task> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, Task)> = tasks
        .into_iter()
        .map(|task| {
            let rank = seen.entry(task.kind.clone()).or_default();
            *rank += 1;
            (*rank, task)
        })
        .collect();
    ranked.sort_by(|(left, a), (right, b)| left.cmp(right).then_with(|| a.kind.cmp(&b.kind)));
    ranked.into_iter().map(|(_, task)| task).collect()
}

#[cfg(test)]
mod tests {
    use turnwise_core::Environment;

    use super::*;

    struct Set(Vec<Task>);

    impl TaskSet for Set {
        fn name(&self) -> &'static str {
            "test"
        }
        fn splits(&self) -> Vec<String> {
            vec!["train".into()]
        }
        fn tasks(&self, _: &str) -> Result<Vec<Task>, EnvError> {
            Ok(self.0.clone())
        }
        fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
            unreachable!("panels play nothing")
        }
    }

    fn set() -> Set {
        let kinds = [("a", 12), ("b", 6), ("c", 2)];
        let task = |kind: &str, index| Task::new(format!("{kind}{index}"), kind, format!("do {index}"));
        Set(kinds
            .into_iter()
            .flat_map(|(kind, count)| (0..count).map(move |index| task(kind, index)))
            .collect())
    }

    fn choice(count: usize) -> Choice {
        Choice { count: Some(count), ..Choice::default() }
    }

    fn ids(panel: &Panel) -> Vec<&str> {
        panel.tasks.iter().map(|task| task.id.as_str()).collect()
    }

    fn pin(choice: Choice) -> Panel {
        Panel::pin(&set(), "train", choice).unwrap()
    }

    #[test]
    fn order_and_hash_depend_on_the_tasks_alone() {
        let mut reversed = set();
        reversed.0.reverse();
        for choice in
            [choice(7), Choice { seed: Some(3), ..choice(7) }, Choice { balanced: true, ..choice(7) }]
        {
            assert_eq!(Panel::pin(&reversed, "train", choice).unwrap(), pin(choice));
        }
        assert_eq!(pin(Choice::default()).tasks.len(), 20);
        assert_ne!(pin(choice(7)).hash, pin(choice(8)).hash);
        assert_ne!(pin(choice(7)).hash, pin(Choice { seed: Some(3), ..choice(7) }).hash);
        // If this hash changes, earlier runs' panels no longer verify.
        assert_eq!(pin(choice(2)).hash, "38e14f223fb6d3835b64ece7ac4ff2775fe17ba5abed8bd87ce3e58c2e4637dd");
    }

    #[test]
    fn balanced_panels_take_every_kind_alike() {
        let count = |panel: &Panel, kind: &str| panel.tasks.iter().filter(|task| task.kind == kind).count();
        for seed in [None, Some(1)] {
            let panel = pin(Choice { count: Some(10), seed, balanced: true });
            assert_eq!([count(&panel, "a"), count(&panel, "b"), count(&panel, "c")], [4, 4, 2]);
        }
    }

    #[test]
    fn too_many_and_doubled_tasks_are_refused() {
        let error = Panel::pin(&set(), "train", choice(21)).unwrap_err().to_string();
        assert!(error.contains("21 tasks are asked for but the split `train` of test has 20"), "{error}");
        let mut doubled = set();
        doubled.0.push(doubled.0[0].clone());
        let error = Panel::pin(&doubled, "train", choice(3)).unwrap_err().to_string();
        assert!(error.contains("the task `a0` twice"), "{error}");
    }

    #[test]
    fn shared_tasks_are_named() {
        let all = pin(Choice::default());
        let (first, rest) = all.tasks.split_at(5);
        let first = Panel::of("test", "train", first.to_vec());
        let mut second = Panel::of("test", "valid", rest.to_vec());
        first.check_disjoint(&second).unwrap();
        second.tasks.push(first.tasks[0].clone());
        let error = first.check_disjoint(&second).unwrap_err().to_string();
        assert!(error.contains("share 1 tasks") && error.contains(&first.tasks[0].id), "{error}");
        second.env = "another".into();
        first.check_disjoint(&second).unwrap();
        let twin = Task { id: "renamed".into(), ..first.tasks[0].clone() };
        let third = Panel::of("test", "valid", vec![twin]);
        let error = first.check_disjoint(&third).unwrap_err().to_string();
        assert!(error.contains("(which `valid` has as `renamed`)"), "{error}");
    }

    #[test]
    fn verification_notices_every_change() {
        let panel = pin(choice(6));
        let read: Panel = serde_json::from_str(&serde_json::to_string(&panel).unwrap()).unwrap();
        read.verify(&set()).unwrap();

        let mut changed = panel.clone();
        changed.tasks.swap(0, 1);
        assert!(changed.verify(&set()).unwrap_err().to_string().contains("was changed after it was pinned"));

        let mut other = set();
        let index = other.0.iter().position(|task| task.id == panel.tasks[2].id).unwrap();
        let mut silent = set();
        silent.0[index].metadata.insert("answer".into(), 42.into());
        let error = panel.verify(&silent).unwrap_err().to_string();
        assert!(error.contains("under the same name"), "{error}");
        let of = |set: &Set| Panel::pin(set, "train", choice(6)).unwrap();
        assert_ne!(of(&silent).hash, panel.hash, "the content is in the hash");
        assert_eq!(ids(&of(&silent)), ids(&panel), "and not in the order");
        other.0[index].goal = "another".into();
        assert!(panel.verify(&other).unwrap_err().to_string().contains("has changed since"));
        other.0.remove(index);
        assert!(panel.verify(&other).unwrap_err().to_string().contains("not in the split `train` any more"));
    }
}
