//! One value per turn or response token of a batch.
//!
//! [`PerTurn`] and [`PerToken`] are ragged tables `[group][trajectory][turn or token]` in batch
//! order. Call [`Table::check_shape`] on tables that [`Table::from_fn`] did not build.
//!
//! ```
//! use turnwise_core::{Batch, PerTurn};
//!
//! let rewards = PerTurn::from(vec![vec![vec![0.0, 1.0], vec![0.5]]]);
//! let doubled = rewards.map(|reward| 2.0 * reward);
//! assert_eq!(doubled[(0, 0, 1)], 2.0);
//! assert_eq!(doubled.values().sum::<f64>(), 3.0);
//! assert!(rewards.check_shape(&Batch::default()).is_err(), "the batch has no group");
//! ```

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Batch, Trajectory};

/// Unit of the last dimension of a [`Table`].
pub trait Unit: Copy + Debug + Default + PartialEq + Send + Sync + 'static {
    /// Plural name, for errors.
    const NAME: &'static str;

    /// Returns a trajectory's number of values.
    fn count(trajectory: &Trajectory) -> usize;
}

/// Turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns;

impl Unit for Turns {
    const NAME: &'static str = "turns";

    fn count(trajectory: &Trajectory) -> usize {
        trajectory.turns.len()
    }
}

/// Response tokens, in turn order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseTokens;

impl Unit for ResponseTokens {
    const NAME: &'static str = "response tokens";

    fn count(trajectory: &Trajectory) -> usize {
        trajectory.response_tokens()
    }
}

/// One value per turn, `[group][trajectory][turn]`.
pub type PerTurn<T> = Table<T, Turns>;

/// One value per response token, `[group][trajectory][token]`.
pub type PerToken<T> = Table<T, ResponseTokens>;

/// Ragged table `[group][trajectory][unit]`, serialized as nested lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table<T, U: Unit> {
    groups: Vec<Vec<Vec<T>>>,
    #[serde(skip)]
    unit: PhantomData<U>,
}

/// Mismatch between the shape of a table and the shape of its batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// The table and the batch have different numbers of groups.
    #[error("the table has {found} groups, the batch has {expected}")]
    Groups {
        /// Number of groups in the table.
        found: usize,
        /// Number of groups in the batch.
        expected: usize,
    },
    /// A group has different numbers of trajectories in the table and in the batch.
    #[error("group {group} of the table has {found} trajectories, of the batch {expected}")]
    Trajectories {
        /// Group index.
        group: usize,
        /// Number of the group's trajectories in the table.
        found: usize,
        /// Number of the group's trajectories in the batch.
        expected: usize,
    },
    /// A trajectory has different numbers of units (turns or tokens) in the table and in the batch.
    #[error(
        "trajectory {trajectory} of group {group} has {found} {unit} in the table, {expected} in the batch"
    )]
    Units {
        /// Plural name of the unit.
        unit: &'static str,
        /// Group index.
        group: usize,
        /// Trajectory index in the group.
        trajectory: usize,
        /// Number of the trajectory's units in the table.
        found: usize,
        /// Number of the trajectory's units in the batch.
        expected: usize,
    },
}

impl<T, U: Unit> Default for Table<T, U> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T, U: Unit> From<Vec<Vec<Vec<T>>>> for Table<T, U> {
    fn from(groups: Vec<Vec<Vec<T>>>) -> Self {
        Self { groups, unit: PhantomData }
    }
}

impl<T, U: Unit> From<Table<T, U>> for Vec<Vec<Vec<T>>> {
    fn from(table: Table<T, U>) -> Self {
        table.groups
    }
}

impl<T: PartialEq, U: Unit> PartialEq<Vec<Vec<Vec<T>>>> for Table<T, U> {
    fn eq(&self, other: &Vec<Vec<Vec<T>>>) -> bool {
        self.groups == *other
    }
}

impl<T, U: Unit> FromIterator<Vec<Vec<T>>> for Table<T, U> {
    fn from_iter<I: IntoIterator<Item = Vec<Vec<T>>>>(groups: I) -> Self {
        Self::from(groups.into_iter().collect::<Vec<_>>())
    }
}

impl<T, U: Unit> Table<T, U> {
    /// Creates a table with the batch's shape; `value(group, trajectory, unit)` returns each entry.
    pub fn from_fn(batch: &Batch, mut value: impl FnMut(usize, usize, usize) -> T) -> Self {
        let groups = batch.groups.iter().enumerate();
        groups
            .map(|(group, data)| {
                let members = data.trajectories.iter().enumerate();
                members
                    .map(|(index, data)| (0..U::count(data)).map(|unit| value(group, index, unit)).collect())
                    .collect()
            })
            .collect()
    }

    /// Like [`Table::from_fn`], but `value` may fail.
    ///
    /// # Errors
    /// Returns the first error in batch order.
    pub fn try_from_fn<E>(
        batch: &Batch,
        mut value: impl FnMut(usize, usize, usize) -> Result<T, E>,
    ) -> Result<Self, E> {
        let mut table = Vec::with_capacity(batch.groups.len());
        for (group, data) in batch.groups.iter().enumerate() {
            let mut rows = Vec::with_capacity(data.trajectories.len());
            for (index, data) in data.trajectories.iter().enumerate() {
                let row: Result<Vec<T>, E> =
                    (0..U::count(data)).map(|unit| value(group, index, unit)).collect();
                rows.push(row?);
            }
            table.push(rows);
        }
        Ok(Self::from(table))
    }

    /// Creates a table with the batch's shape and the same value everywhere.
    pub fn filled(batch: &Batch, value: T) -> Self
    where
        T: Clone,
    {
        Self::from_fn(batch, |_, _, _| value.clone())
    }

    /// Creates a table from the trajectories' rows in batch order; if there are too few `rows`, the
    /// last trajectories get empty rows.
    pub fn from_rows(batch: &Batch, rows: impl IntoIterator<Item = Vec<T>>) -> Self {
        let mut rows = rows.into_iter();
        let groups = batch.groups.iter();
        groups
            .map(|group| group.trajectories.iter().map(|_| rows.next().unwrap_or_default()).collect())
            .collect()
    }

    /// Checks the table's shape against the batch.
    ///
    /// # Errors
    /// Returns the first difference in shape.
    pub fn check_shape(&self, batch: &Batch) -> Result<(), ShapeError> {
        let (found, expected) = (self.groups.len(), batch.groups.len());
        if found != expected {
            return Err(ShapeError::Groups { found, expected });
        }
        for (group, (rows, data)) in self.groups.iter().zip(&batch.groups).enumerate() {
            let (found, expected) = (rows.len(), data.trajectories.len());
            if found != expected {
                return Err(ShapeError::Trajectories { group, found, expected });
            }
            for (trajectory, (row, data)) in rows.iter().zip(&data.trajectories).enumerate() {
                let (found, expected) = (row.len(), U::count(data));
                if found != expected {
                    return Err(ShapeError::Units { unit: U::NAME, group, trajectory, found, expected });
                }
            }
        }
        Ok(())
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns true if there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Appends a group `[trajectory][unit]`.
    pub fn push(&mut self, group: Vec<Vec<T>>) {
        self.groups.push(group);
    }

    /// Iterates over groups `[trajectory][unit]` in order.
    pub fn groups(&self) -> std::slice::Iter<'_, Vec<Vec<T>>> {
        self.groups.iter()
    }

    /// Iterates mutably over groups.
    pub fn groups_mut(&mut self) -> std::slice::IterMut<'_, Vec<Vec<T>>> {
        self.groups.iter_mut()
    }

    /// Iterates over trajectories' rows in batch order.
    pub fn rows(&self) -> impl Iterator<Item = &[T]> {
        self.groups.iter().flatten().map(Vec::as_slice)
    }

    /// Iterates over values in batch order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.groups.iter().flatten().flatten()
    }

    /// Iterates mutably over values in batch order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.groups.iter_mut().flatten().flatten()
    }

    /// Iterates over ((group, trajectory, unit), value).
    pub fn iter(&self) -> impl Iterator<Item = ((usize, usize, usize), &T)> {
        self.groups.iter().enumerate().flat_map(|(group, rows)| {
            rows.iter().enumerate().flat_map(move |(trajectory, row)| {
                row.iter().enumerate().map(move |(unit, value)| ((group, trajectory, unit), value))
            })
        })
    }

    /// Returns a trajectory's row, if it exists.
    pub fn row(&self, group: usize, trajectory: usize) -> Option<&[T]> {
        self.groups.get(group)?.get(trajectory).map(Vec::as_slice)
    }

    /// Returns a mutable reference to one value, and creates the missing entries up to it.
    pub fn entry(&mut self, group: usize, trajectory: usize, unit: usize) -> &mut T
    where
        T: Default,
    {
        fn grow<V: Default>(list: &mut Vec<V>, index: usize) -> &mut V {
            if list.len() <= index {
                list.resize_with(index + 1, V::default);
            }
            &mut list[index]
        }
        grow(grow(grow(&mut self.groups, group), trajectory), unit)
    }

    /// Maps every value.
    pub fn map<V>(&self, mut map: impl FnMut(&T) -> V) -> Table<V, U> {
        let groups = self.groups.iter();
        groups.map(|rows| rows.iter().map(|row| row.iter().map(&mut map).collect()).collect()).collect()
    }

    /// Combines two tables value by value, at the positions that exist in both tables.
    pub fn zip<V, W>(&self, other: &Table<V, U>, mut zip: impl FnMut(&T, &V) -> W) -> Table<W, U> {
        let groups = self.groups.iter().zip(&other.groups);
        groups
            .map(|(rows, others)| {
                let rows = rows.iter().zip(others);
                rows.map(|(row, other)| row.iter().zip(other).map(|(a, b)| zip(a, b)).collect()).collect()
            })
            .collect()
    }
}

/// A group's rows, `[trajectory][unit]`.
impl<T, U: Unit> Index<usize> for Table<T, U> {
    type Output = [Vec<T>];

    fn index(&self, group: usize) -> &Self::Output {
        &self.groups[group]
    }
}

impl<T, U: Unit> IndexMut<usize> for Table<T, U> {
    fn index_mut(&mut self, group: usize) -> &mut Self::Output {
        &mut self.groups[group]
    }
}

/// A trajectory's row: (group, trajectory).
impl<T, U: Unit> Index<(usize, usize)> for Table<T, U> {
    type Output = [T];

    fn index(&self, (group, trajectory): (usize, usize)) -> &Self::Output {
        &self.groups[group][trajectory]
    }
}

impl<T, U: Unit> IndexMut<(usize, usize)> for Table<T, U> {
    fn index_mut(&mut self, (group, trajectory): (usize, usize)) -> &mut Self::Output {
        &mut self.groups[group][trajectory]
    }
}

/// One value: (group, trajectory, unit).
impl<T, U: Unit> Index<(usize, usize, usize)> for Table<T, U> {
    type Output = T;

    fn index(&self, (group, trajectory, unit): (usize, usize, usize)) -> &Self::Output {
        &self.groups[group][trajectory][unit]
    }
}

impl<T, U: Unit> IndexMut<(usize, usize, usize)> for Table<T, U> {
    fn index_mut(&mut self, (group, trajectory, unit): (usize, usize, usize)) -> &mut Self::Output {
        &mut self.groups[group][trajectory][unit]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, Turn};

    fn batch(tokens: &[&[&[usize]]]) -> Batch {
        let turn = |&tokens: &usize| Turn { response_ids: vec![0; tokens], ..Turn::default() };
        let trajectory = |turns: &&[usize]| {
            let mut trajectory: Trajectory = serde_json::from_str(
                r#"{"schema_version":1,"task":{"id":"","kind":"","goal":""},"group":0,"sample":0,"turns":[],
                    "stop":{"kind":"max_turns"},"success":false}"#,
            )
            .unwrap();
            trajectory.turns = turns.iter().map(turn).collect();
            trajectory
        };
        let group = |rows: &&[&[usize]]| Group { trajectories: rows.iter().map(trajectory).collect() };
        Batch { groups: tokens.iter().map(group).collect() }
    }

    #[test]
    fn tables_take_the_shape_of_their_batch() {
        let batch = batch(&[&[&[2, 3], &[1]], &[&[]]]);
        let turns: PerTurn<usize> =
            PerTurn::from_fn(&batch, |group, index, turn| 100 * group + 10 * index + turn);
        assert_eq!(turns, PerTurn::from(vec![vec![vec![0, 1], vec![10]], vec![vec![]]]));
        assert_eq!(turns.check_shape(&batch), Ok(()));
        assert_eq!(PerToken::filled(&batch, 0.5).rows().map(<[f64]>::len).collect::<Vec<_>>(), [5, 1, 0]);
        assert_eq!(PerTurn::from_rows(&batch, [vec![7, 8], vec![9]])[(0, 1, 0)], 9);
        let failed = PerTurn::<()>::try_from_fn(&batch, |_, index, turn| Err((index, turn)));
        assert_eq!(failed, Err((0, 0)));
    }

    #[test]
    fn a_shape_that_disagrees_is_named() {
        let batch = batch(&[&[&[2, 3], &[1]]]);
        let error =
            |table: Vec<Vec<Vec<f64>>>| PerTurn::from(table).check_shape(&batch).unwrap_err().to_string();
        assert_eq!(error(vec![]), "the table has 0 groups, the batch has 1");
        assert_eq!(error(vec![vec![]]), "group 0 of the table has 0 trajectories, of the batch 2");
        let short = error(vec![vec![vec![0.0; 2], vec![]]]);
        assert_eq!(short, "trajectory 1 of group 0 has 0 turns in the table, 1 in the batch");
        let tokens = PerToken::from(vec![vec![vec![0.0; 4], vec![0.0]]]).check_shape(&batch).unwrap_err();
        assert!(tokens.to_string().contains("4 response tokens in the table, 5 in the batch"));
    }

    #[test]
    fn values_are_walked_mapped_and_zipped_in_order() {
        let table = PerTurn::from(vec![vec![vec![1, 2], vec![3]], vec![vec![4]]]);
        let walked: Vec<_> = table.iter().map(|(index, &value)| (index, value)).collect();
        assert_eq!(walked, [((0, 0, 0), 1), ((0, 0, 1), 2), ((0, 1, 0), 3), ((1, 0, 0), 4)]);
        let sums = table.zip(&table.map(|value| 10 * value), |a, b| a + b);
        assert_eq!(sums.values().copied().collect::<Vec<_>>(), [11, 22, 33, 44]);
        let mut grown = table.clone();
        *grown.entry(2, 1, 1) += 5;
        assert_eq!(grown[2], [vec![], vec![0, 5]]);
        assert_eq!((&table[(0, 0)], table[1].len(), table.row(0, 2)), (&[1, 2][..], 1, None));
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(text, "[[[1,2],[3]],[[4]]]");
        assert_eq!(serde_json::from_str::<PerTurn<i32>>(&text).unwrap(), table);
    }
}
