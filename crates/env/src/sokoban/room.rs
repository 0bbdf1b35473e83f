//! Cells, moves and rewards of gym-sokoban.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Reward of every step.
pub(crate) const STEP_REWARD: f64 = -0.1;
/// Reward added if more boxes are on targets than after the previous step, or subtracted if fewer
/// are.
pub(crate) const TARGET_REWARD: f64 = 1.0;
/// Reward added if all boxes are on targets.
pub(crate) const SOLVED_REWARD: f64 = 10.0;

/// Maximum width and height in cells.
pub const MOST_SIDE: usize = 32;
/// Maximum number of boxes.
pub(crate) const MOST_BOXES: usize = 8;

/// Kind of cell. Numbers 0 to 5 are those of gym-sokoban's `room_state`, and 6 is verl-agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cell {
    /// 0
    Wall,
    /// 1
    Floor,
    /// 2
    Target,
    /// 3
    BoxOnTarget,
    /// 4
    Box,
    /// 5
    Player,
    /// 6
    PlayerOnTarget,
}

impl Cell {
    /// All kinds of cell, by number.
    pub const ALL: [Self; 7] = [
        Self::Wall,
        Self::Floor,
        Self::Target,
        Self::BoxOnTarget,
        Self::Box,
        Self::Player,
        Self::PlayerOnTarget,
    ];

    /// Returns the kind of cell with this number.
    pub fn of(number: u64) -> Option<Self> {
        usize::try_from(number).ok().and_then(|number| Self::ALL.get(number).copied())
    }

    /// Returns RAGEN's symbol.
    pub fn symbol(self) -> &'static str {
        ["#", "_", "O", "√", "X", "P", "S"][self as usize]
    }

    /// Returns true for targets, occupied or not.
    pub(crate) fn is_target(self) -> bool {
        matches!(self, Self::Target | Self::BoxOnTarget | Self::PlayerOnTarget)
    }

    /// Returns true if the cell has a box.
    pub(crate) fn is_box(self) -> bool {
        matches!(self, Self::Box | Self::BoxOnTarget)
    }

    /// Returns true if the cell has the player.
    pub(crate) fn is_player(self) -> bool {
        matches!(self, Self::Player | Self::PlayerOnTarget)
    }

    /// Returns true if the player or a box can enter the cell.
    pub fn is_free(self) -> bool {
        matches!(self, Self::Floor | Self::Target)
    }

    /// Returns the cell without player or box.
    pub fn emptied(self) -> Self {
        match self {
            Self::Wall => Self::Wall,
            cell if cell.is_target() => Self::Target,
            _ => Self::Floor,
        }
    }

    /// Returns the cell with a box.
    pub(crate) fn with_box(self) -> Self {
        if self.is_target() { Self::BoxOnTarget } else { Self::Box }
    }

    /// Returns the cell with the player.
    pub(crate) fn with_player(self) -> Self {
        if self.is_target() { Self::PlayerOnTarget } else { Self::Player }
    }
}

/// Direction of a move. In gym-sokoban, the actions' numbers start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Towards the first row (action 1)
    Up,
    /// Action 2
    Down,
    /// Towards the first column (action 3)
    Left,
    /// Action 4
    Right,
}

impl Direction {
    /// All directions, by number.
    pub const ALL: [Self; 4] = [Self::Up, Self::Down, Self::Left, Self::Right];

    /// Returns the action's name.
    pub fn word(self) -> &'static str {
        ["up", "down", "left", "right"][self as usize]
    }
}

/// Text format of a room, one line per row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoomText {
    /// verl-agent's format, with spaces and tabs around symbols (`" # \t"`).
    #[default]
    VerlAgent,
    /// RAGEN's format, with adjacent symbols.
    Ragen,
}

/// Result of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// `STEP_REWARD`, plus or minus `TARGET_REWARD` and plus `SOLVED_REWARD` if their conditions
    /// hold.
    pub reward: f64,
    /// Whether the player moved.
    pub moved: bool,
    /// Whether all boxes are on targets.
    pub solved: bool,
}

/// Room with player and boxes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    width: usize,
    cells: Vec<Cell>,
    player: usize,
    boxes: usize,
    /// Number of boxes on targets when the last reward was computed; starts at 0, as in
    /// gym-sokoban.
    counted: usize,
}

impl Room {
    /// Creates a room from rows of `width` cells.
    ///
    /// # Errors
    /// Fails unless the room has one player, one to [`MOST_BOXES`] boxes, as many targets as boxes,
    /// closed walls and at most [`MOST_SIDE`] cells per side.
    pub fn new(width: usize, cells: Vec<Cell>) -> Result<Self, String> {
        if width == 0 || cells.is_empty() || !cells.len().is_multiple_of(width) {
            return Err(format!("{} cells are no rows of {width}", cells.len()));
        }
        let height = cells.len() / width;
        if width.max(height) > MOST_SIDE {
            return Err(format!("{width} x {height} cells are more than {MOST_SIDE} x {MOST_SIDE}"));
        }
        let count = |is: fn(Cell) -> bool| cells.iter().filter(|cell| is(**cell)).count();
        let (players, boxes, targets) = (count(Cell::is_player), count(Cell::is_box), count(Cell::is_target));
        if players != 1 {
            return Err(format!("there are {players} players; a level has one (P, or S on a target)"));
        }
        if boxes == 0 || boxes > MOST_BOXES {
            return Err(format!(
                "there are {boxes} boxes; a level has 1 to {MOST_BOXES} (X, or √ on a target)"
            ));
        }
        if boxes != targets {
            return Err(format!(
                "there are {boxes} boxes and {targets} targets; a level has as many of both"
            ));
        }
        let player = cells.iter().position(|cell| cell.is_player()).unwrap_or_default();
        let room = Self { width, cells, player, boxes, counted: 0 };
        let (last_row, last_column) = (height - 1, width - 1);
        let opening = room.reachable().into_iter().find(|&at| {
            let (row, column) = (at / width, at % width);
            row == 0 || row == last_row || column == 0 || column == last_column
        });
        if let Some(at) = opening {
            let (row, column) = (at / width + 1, at % width + 1);
            return Err(format!(
                "the player can leave at row {row}, column {column}; walls must close the room"
            ));
        }
        Ok(room)
    }

    /// Returns the width in cells.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the height in cells.
    pub fn height(&self) -> usize {
        self.cells.len() / self.width
    }

    /// Returns the cells in row order.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the index of the player's cell.
    pub fn player(&self) -> usize {
        self.player
    }

    /// Returns the number of boxes.
    pub fn boxes(&self) -> usize {
        self.boxes
    }

    /// Returns the number of boxes on targets.
    pub(crate) fn on_target(&self) -> usize {
        self.cells.iter().filter(|cell| **cell == Cell::BoxOnTarget).count()
    }

    /// Returns true if all boxes are on targets.
    pub(crate) fn is_solved(&self) -> bool {
        self.on_target() == self.boxes
    }

    pub(super) fn counted(&self) -> usize {
        self.counted
    }

    pub(super) fn with_counted(mut self, counted: usize) -> Self {
        self.counted = counted;
        self
    }

    /// Returns the index of the adjacent cell. If `at` is reachable, the index is inside the room,
    /// because walls enclose all reachable cells.
    pub(super) fn beside(&self, at: usize, direction: Direction) -> usize {
        match direction {
            Direction::Up => at - self.width,
            Direction::Down => at + self.width,
            Direction::Left => at - 1,
            Direction::Right => at + 1,
        }
    }

    /// Returns the cells that the player could reach if there were no boxes, in breadth-first
    /// order.
    pub(super) fn reachable(&self) -> Vec<usize> {
        let height = self.height();
        let mut seen = vec![false; self.cells.len()];
        seen[self.player] = true;
        let mut found = vec![self.player];
        let mut next = 0;
        while let Some(&at) = found.get(next) {
            next += 1;
            let (row, column) = (at / self.width, at % self.width);
            let inside = [row > 0, row + 1 < height, column > 0, column + 1 < self.width];
            for (direction, inside) in Direction::ALL.into_iter().zip(inside) {
                if !inside {
                    continue;
                }
                let beside = self.beside(at, direction);
                if self.cells[beside] != Cell::Wall && !seen[beside] {
                    seen[beside] = true;
                    found.push(beside);
                }
            }
        }
        found
    }

    /// Moves the player, who pushes a box that is in the way. An impossible move changes nothing,
    /// but is rewarded like any other step.
    pub fn act(&mut self, direction: Direction) -> Moved {
        let next = self.beside(self.player, direction);
        let cell = self.cells[next];
        let mut moved = cell.is_free();
        if cell.is_box() {
            let behind = self.beside(next, direction);
            if self.cells[behind].is_free() {
                self.cells[behind] = self.cells[behind].with_box();
                self.cells[next] = cell.emptied();
                moved = true;
            }
        }
        if moved {
            self.cells[self.player] = self.cells[self.player].emptied();
            self.cells[next] = self.cells[next].with_player();
            self.player = next;
        }
        let on_target = self.on_target();
        let mut reward = STEP_REWARD;
        if on_target > self.counted {
            reward += TARGET_REWARD;
        } else if on_target < self.counted {
            reward -= TARGET_REWARD;
        }
        let solved = on_target == self.boxes;
        if solved {
            reward += SOLVED_REWARD;
        }
        self.counted = on_target;
        Moved { reward, moved, solved }
    }

    /// Returns the room as text.
    pub fn render(&self, text: RoomText) -> String {
        const SPACED: [&str; 7] = [" # \t", " _ \t", " O \t", " √ \t", " X \t", " P \t", " S \t"];
        let mut out = String::with_capacity(self.cells.len() * 5 + 8 * self.boxes);
        for (index, row) in self.cells.chunks_exact(self.width).enumerate() {
            if index > 0 {
                out.push('\n');
            }
            for cell in row {
                out.push_str(match text {
                    RoomText::VerlAgent => SPACED[*cell as usize],
                    RoomText::Ragen => cell.symbol(),
                });
            }
        }
        out
    }
}

impl fmt::Display for Room {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.render(RoomText::Ragen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sokoban::level::parse;

    fn room(rows: &str) -> Room {
        parse(rows).unwrap()
    }

    fn act(room: &mut Room, direction: Direction) -> (f64, bool, bool) {
        let Moved { reward, moved, solved } = room.act(direction);
        (reward, moved, solved)
    }

    #[test]
    fn a_box_is_pushed_and_not_pulled() {
        let mut room = room("######\n#PX_O#\n######");
        assert_eq!(act(&mut room, Direction::Right), (-0.1, true, false));
        assert_eq!(room.to_string(), "######\n#_PXO#\n######");
        assert_eq!(act(&mut room, Direction::Left), (-0.1, true, false));
        assert_eq!(room.to_string(), "######\n#P_XO#\n######");
        act(&mut room, Direction::Right);
        assert_eq!(act(&mut room, Direction::Right), (10.9, true, true));
        assert_eq!(room.to_string(), "######\n#__P√#\n######");
    }

    #[test]
    fn what_cannot_be_done_costs_the_same_and_changes_nothing() {
        for rows in ["####\n#XP#\n#O_#\n####", "#####\n#PXX#\n#OO_#\n#####"] {
            let mut room = room(rows);
            for direction in [Direction::Up, if rows.len() < 20 { Direction::Left } else { Direction::Right }]
            {
                assert_eq!(act(&mut room, direction), (-0.1, false, false));
                assert_eq!(room.to_string(), rows);
            }
        }
    }

    #[test]
    fn a_box_that_leaves_its_target_costs_what_it_gave() {
        let mut room = room("#######\n#P√X_O#\n#######");
        // The first step counts a box on a target from the start.
        assert_eq!(act(&mut room, Direction::Left).0, 0.9);
        let mut room = super::tests::room("#######\n#PXO_X#\n#O____#\n#######");
        assert_eq!(act(&mut room, Direction::Right).0, 0.9);
        assert_eq!(act(&mut room, Direction::Right).0, -1.1);
        assert_eq!(room.to_string(), "#######\n#__SXX#\n#O____#\n#######");
    }

    #[test]
    fn texts_are_the_originals() {
        let room = room("#####\n#_√_#\n#_SX#\n#####");
        assert_eq!(room.render(RoomText::Ragen), "#####\n#_√_#\n#_SX#\n#####");
        assert!(
            room.render(RoomText::VerlAgent)
                .starts_with(" # \t # \t # \t # \t # \t\n # \t _ \t √ \t _ \t # \t\n")
        );
    }

    #[test]
    fn what_is_no_level_is_refused() {
        for (rows, expected) in [
            ("####\n#XO#\n####", "0 players"),
            ("#####\n#PP_#\n#XO_#\n#####", "2 players"),
            ("####\n#P_#\n####", "0 boxes"),
            ("#####\n#PXX#\n#_O_#\n#####", "2 boxes and 1 targets"),
            ("#####\n#PXO_\n#####", "leave at row 2, column 5"),
            ("P", "0 boxes"),
        ] {
            let error = parse(rows).unwrap_err();
            assert!(error.contains(expected), "{rows}: {error}");
        }
        let wide = format!("{0}\n#PXO{1}#\n{0}", "#".repeat(40), "_".repeat(35));
        assert!(parse(&wide).unwrap_err().contains("more than 32"));
    }
}
