//! Shortest solutions by breadth-first search.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use super::room::{Direction, MOST_BOXES, Room};

/// Default maximum number of visited states.
pub(crate) const MOST_STATES: usize = 4_000_000;

/// Maximum number of possible states for the lookup table; with more, a hash set replaces it.
const MOST_TABLE: u64 = 1 << 18;

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Solution {
    /// A shortest solution, empty for a solved level.
    Moves(Vec<Direction>),
    /// The level has no solution.
    Unsolvable,
    /// The search reached its limit.
    TooLarge,
}

impl Solution {
    /// Returns the moves if a solution was found.
    pub fn moves(self) -> Option<Vec<Direction>> {
        match self {
            Self::Moves(moves) => Some(moves),
            Self::Unsolvable | Self::TooLarge => None,
        }
    }
}

#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

#[derive(Default)]
pub(super) struct Seen {
    /// For each state, the number of the last search that visited it.
    table: Vec<u32>,
    search: u32,
    set: HashSet<u64, BuildHasherDefault<Spread>>,
    uses_table: bool,
}

impl Seen {
    pub(super) fn clear(&mut self, codes: u64) {
        self.uses_table = codes <= MOST_TABLE;
        if self.uses_table {
            let length = codes as usize;
            if self.table.len() < length {
                self.table.resize(length, 0);
            }
            self.search = self.search.checked_add(1).unwrap_or_else(|| {
                self.table.fill(0);
                1
            });
        } else {
            self.set.clear();
        }
    }

    pub(super) fn insert(&mut self, code: u64) -> bool {
        if self.uses_table {
            std::mem::replace(&mut self.table[code as usize], self.search) != self.search
        } else {
            self.set.insert(code)
        }
    }
}

#[derive(Default)]
pub(super) struct Floor {
    /// For each numbered cell, its index in the room.
    pub(super) cells: Vec<usize>,
    /// For each numbered cell and direction, the neighbour's number, or [`WALL`] if the neighbour
    /// can never be entered.
    pub(super) beside: Vec<[u16; 4]>,
    pub(super) targets: Vec<bool>,
    numbers: Vec<u16>,
}

pub(super) const WALL: u16 = u16::MAX;

impl Floor {
    /// Gives numbers to the cells that the player could reach if there were no boxes.
    pub(super) fn set(&mut self, room: &Room) {
        self.cells = room.reachable();
        self.cells.sort_unstable();
        self.numbers.clear();
        self.numbers.resize(room.cells().len(), WALL);
        for (number, &at) in self.cells.iter().enumerate() {
            self.numbers[at] = number as u16;
        }
        self.beside.clear();
        self.targets.clear();
        for &at in &self.cells {
            let beside = Direction::ALL.map(|direction| self.numbers[room.beside(at, direction)]);
            self.beside.push(beside);
            self.targets.push(room.cells()[at].is_target());
        }
    }

    pub(super) fn number(&self, at: usize) -> u16 {
        self.numbers[at]
    }

    pub(super) fn codes(&self, boxes: usize) -> Option<u64> {
        (self.cells.len() as u64).checked_pow(boxes as u32 + 1)
    }
}

/// Cell numbers of the player and the boxes; those of the boxes are in ascending order.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) player: u16,
    pub(super) boxes: [u16; MOST_BOXES],
    pub(super) count: usize,
}

impl State {
    pub(super) fn code(&self, cells: u64) -> u64 {
        self.boxes[..self.count].iter().fold(u64::from(self.player), |code, &at| code * cells + u64::from(at))
    }

    pub(super) fn decode(mut code: u64, cells: u64, count: usize) -> Self {
        let mut boxes = [0; MOST_BOXES];
        for place in boxes[..count].iter_mut().rev() {
            *place = (code % cells) as u16;
            code /= cells;
        }
        Self { player: code as u16, boxes, count }
    }

    pub(super) fn box_at(&self, at: u16) -> Option<usize> {
        self.boxes[..self.count].iter().position(|&place| place == at)
    }

    pub(super) fn shift(&mut self, index: usize, to: u16) {
        self.boxes[index] = to;
        let mut index = index;
        while index > 0 && self.boxes[index - 1] > self.boxes[index] {
            self.boxes.swap(index - 1, index);
            index -= 1;
        }
        while index + 1 < self.count && self.boxes[index + 1] < self.boxes[index] {
            self.boxes.swap(index + 1, index);
            index += 1;
        }
    }
}

struct Node {
    code: u64,
    parent: u32,
    direction: Direction,
}

/// Solver that reuses its buffers.
pub struct Solver {
    floor: Floor,
    seen: Seen,
    nodes: Vec<Node>,
    most_states: usize,
}

impl Default for Solver {
    fn default() -> Self {
        Self::new(MOST_STATES)
    }
}

impl Solver {
    /// Creates a solver that visits at most `most_states` states.
    pub fn new(most_states: usize) -> Self {
        Self { floor: Floor::default(), seen: Seen::default(), nodes: Vec::new(), most_states }
    }

    /// Returns the maximum number of visited states.
    pub(crate) fn most_states(&self) -> usize {
        self.most_states
    }

    /// Returns a shortest solution. Among equally short solutions, the order of [`Direction::ALL`]
    /// decides.
    pub fn solve(&mut self, room: &Room) -> Solution {
        self.floor.set(room);
        let mut start = State { player: self.floor.number(room.player()), boxes: [0; MOST_BOXES], count: 0 };
        let mut targets = 0;
        for (at, cell) in room.cells().iter().enumerate() {
            let number = self.floor.number(at);
            if number == WALL {
                // Unreachable cells never change.
                if cell.is_box() != cell.is_target() {
                    return Solution::Unsolvable;
                }
                continue;
            }
            targets += usize::from(cell.is_target());
            if cell.is_box() {
                start.boxes[start.count] = number;
                start.count += 1;
            }
        }
        if start.count != targets {
            return Solution::Unsolvable;
        }
        let Some(codes) = self.floor.codes(start.count) else { return Solution::TooLarge };
        self.search(start, codes)
    }

    fn search(&mut self, start: State, codes: u64) -> Solution {
        let Self { floor, seen, nodes, most_states } = self;
        let cells = floor.cells.len() as u64;
        let solved = |state: &State| state.boxes[..state.count].iter().all(|&at| floor.targets[at as usize]);
        if solved(&start) {
            return Solution::Moves(Vec::new());
        }
        seen.clear(codes);
        nodes.clear();
        let first = start.code(cells);
        seen.insert(first);
        nodes.push(Node { code: first, parent: 0, direction: Direction::Up });
        let mut at = 0;
        while at < nodes.len() {
            let state = State::decode(nodes[at].code, cells, start.count);
            for direction in Direction::ALL {
                let next = floor.beside[state.player as usize][direction as usize];
                if next == WALL {
                    continue;
                }
                let mut after = State { player: next, ..state };
                let pushed = state.box_at(next);
                if let Some(index) = pushed {
                    let behind = floor.beside[next as usize][direction as usize];
                    if behind == WALL || state.box_at(behind).is_some() {
                        continue;
                    }
                    after.shift(index, behind);
                }
                let code = after.code(cells);
                if !seen.insert(code) {
                    continue;
                }
                nodes.push(Node { code, parent: at as u32, direction });
                if pushed.is_some() && solved(&after) {
                    return Solution::Moves(path(nodes));
                }
                if nodes.len() >= *most_states {
                    return Solution::TooLarge;
                }
            }
            at += 1;
        }
        Solution::Unsolvable
    }
}

fn path(nodes: &[Node]) -> Vec<Direction> {
    let mut moves = Vec::new();
    let mut at = nodes.len() - 1;
    while at > 0 {
        moves.push(nodes[at].direction);
        at = nodes[at].parent as usize;
    }
    moves.reverse();
    moves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sokoban::level::parse;

    fn solve(rows: &str) -> Solution {
        Solver::default().solve(&parse(rows).unwrap())
    }

    #[test]
    fn solutions_are_shortest_and_solve() {
        for (rows, moves) in [
            ("#####\n#PXO#\n#####", 1),
            ("#####\n#P√_#\n#####", 0),
            ("######\n#____#\n#_XO_#\n#__P_#\n######", 4),
            ("#######\n#O__XP#\n#O_X__#\n#_____#\n#######", 8),
        ] {
            let mut room = parse(rows).unwrap();
            let found = solve(rows).moves().unwrap();
            let solved = found.iter().fold(moves == 0, |_, &direction| room.act(direction).solved);
            assert!(solved && found.len() == moves, "{rows}\n{found:?}");
        }
    }

    #[test]
    fn what_cannot_be_solved_is_known() {
        assert_eq!(solve("#####\n#X_O#\n#_P_#\n#####"), Solution::Unsolvable);
        assert_eq!(solve("#######\n#PXO#X#\n#___#O#\n#######"), Solution::Unsolvable);
        assert!(solve("#######\n#PXO#√#\n#___#_#\n#######").moves().is_some());
        let wide = format!(
            "{0}\n#P{1}#\n#_XXXX_{2}#\n#{3}OOOO#\n{0}",
            "#".repeat(20),
            "_".repeat(17),
            "_".repeat(12),
            "_".repeat(14)
        );
        assert_eq!(Solver::new(1000).solve(&parse(&wide).unwrap()), Solution::TooLarge);
    }

    #[test]
    fn a_table_and_a_set_find_the_same() {
        let rows = "########\n#______#\n#_X__O_#\n#_X_PO_#\n#______#\n########";
        let room = parse(rows).unwrap();
        let mut solver = Solver::default();
        let with_table = solver.solve(&room).moves().unwrap();
        solver.floor.set(&room);
        let state = |solver: &Solver| {
            let mut state =
                State { player: solver.floor.number(room.player()), boxes: [0; MOST_BOXES], count: 0 };
            for (at, cell) in room.cells().iter().enumerate().filter(|(_, cell)| cell.is_box()) {
                assert!(cell.is_box());
                state.boxes[state.count] = solver.floor.number(at);
                state.count += 1;
            }
            state
        };
        let start = state(&solver);
        let with_set = solver.search(start, u64::MAX);
        assert_eq!(with_set, Solution::Moves(with_table));
    }
}
