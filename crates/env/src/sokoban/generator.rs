//! Generates levels by playing backwards from a carved room whose boxes are all on targets.
//!
//! A breadth-first search over reversed moves finds states from which the level can be solved. The
//! level starts in a state whose shortest solution, verified by a forward search, has `min_moves`
//! to `max_moves` moves.

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Purpose, Rng, Seed};

use super::room::{Cell, Direction, MOST_BOXES, Room};
use super::solver::{Floor, Seen, Solution, Solver, State, WALL};

const MOST_ATTEMPTS: u64 = 2_000;

const MOST_BACKWARD: usize = 200_000;

/// Generator settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GeneratorConfig {
    /// Random seed.
    pub seed: u64,
    /// Cells per row, including walls.
    #[schemars(range(min = 4, max = 16))]
    pub width: usize,
    /// Rows, including walls.
    #[schemars(range(min = 4, max = 16))]
    pub height: usize,
    /// Minimum number of boxes.
    #[schemars(range(min = 1, max = 5))]
    pub min_boxes: usize,
    /// Maximum number of boxes. Levels cycle through all numbers from `min_boxes` to `max_boxes`.
    #[schemars(range(min = 1, max = 5))]
    pub max_boxes: usize,
    /// Minimum number of moves in the shortest solution.
    #[schemars(range(min = 1, max = 200))]
    pub min_moves: usize,
    /// Maximum number of moves in the shortest solution.
    #[schemars(range(min = 1, max = 200))]
    pub max_moves: usize,
    /// Number of training levels.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Number of `valid` levels.
    #[schemars(range(max = 1000000))]
    pub valid: usize,
    /// Number of `test` levels.
    #[schemars(range(max = 1000000))]
    pub test: usize,
}

impl Default for GeneratorConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            width: 6,
            height: 6,
            min_boxes: 1,
            max_boxes: 1,
            min_moves: 2,
            max_moves: 12,
            train: 2000,
            valid: 256,
            test: 256,
        }
    }
}

/// A level with its shortest solution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Start position, with no box on a target.
    pub room: Room,
    /// A shortest solution.
    pub solution: Vec<Direction>,
}

/// Level generator that reuses its buffers.
#[derive(Default)]
pub struct Generator {
    solver: Solver,
    floor: Floor,
    seen: Seen,
    nodes: Vec<(u64, u32)>,
    candidates: Vec<(u32, u64)>,
}

impl Generator {
    /// Generates one level.
    ///
    /// # Errors
    /// Fails if none of the rooms tried has a shortest solution of `min_moves` to `max_moves`
    /// moves.
    pub fn level(&mut self, config: &GeneratorConfig, index: u64) -> Result<Level, EnvError> {
        let counts = config.max_boxes.saturating_sub(config.min_boxes) as u64 + 1;
        let boxes = config.min_boxes + (index % counts) as usize;
        for attempt in 0..MOST_ATTEMPTS {
            let mut rng = Seed::derive(config.seed, Purpose::World, &[index, attempt]).rng();
            if let Some(level) = self.attempt(config, boxes.min(MOST_BOXES), &mut rng) {
                return Ok(level);
            }
        }
        Err(EnvError::Other(format!(
            "[env] generator: {MOST_ATTEMPTS} rooms of {} x {} with {boxes} boxes had no solution of {} to {} moves; lower \
             generator.min_moves or the number of boxes, or make the room larger",
            config.width, config.height, config.min_moves, config.max_moves
        )))
    }

    fn attempt(&mut self, config: &GeneratorConfig, boxes: usize, rng: &mut Rng) -> Option<Level> {
        let (mut cells, free) = carve(config, boxes, rng)?;
        let mut places = free.clone();
        // Partial shuffle: targets with boxes, then the player.
        for index in 0..=boxes {
            let other = index + rng.below(places.len() - index);
            places.swap(index, other);
        }
        for &target in &places[..boxes] {
            cells[target] = Cell::BoxOnTarget;
        }
        cells[places[boxes]] = Cell::Player;
        let solved = Room::new(config.width, cells.clone()).ok()?;
        let start = self.start(&solved, config, rng)?;
        let at = |number: u16| self.floor.cells[number as usize];
        for cell in &mut cells {
            *cell = cell.emptied();
        }
        for &place in &start.boxes[..start.count] {
            cells[at(place)] = cells[at(place)].with_box();
        }
        cells[at(start.player)] = cells[at(start.player)].with_player();
        let room = Room::new(config.width, cells).ok()?;
        match self.solver.solve(&room) {
            Solution::Moves(solution) if (config.min_moves..=config.max_moves).contains(&solution.len()) => {
                Some(Level { room, solution })
            }
            _ => None,
        }
    }

    /// Returns a start state: uniformly picks a distance from the solved room (in moves), then a
    /// state at that distance in which no box is on a target.
    fn start(&mut self, solved: &Room, config: &GeneratorConfig, rng: &mut Rng) -> Option<State> {
        let Self { floor, seen, nodes, candidates, .. } = self;
        floor.set(solved);
        let mut state = State { player: 0, boxes: [0; MOST_BOXES], count: 0 };
        for (number, target) in (0u16..).zip(&floor.targets) {
            if *target {
                state.boxes[state.count] = number;
                state.count += 1;
            }
        }
        let cells = floor.cells.len() as u64;
        seen.clear(floor.codes(state.count)?);
        nodes.clear();
        candidates.clear();
        for player in (0..cells as u16).filter(|&player| state.box_at(player).is_none()) {
            let code = State { player, ..state }.code(cells);
            seen.insert(code);
            nodes.push((code, 0));
        }
        let mut next = 0;
        while let Some(&(code, moves)) = nodes.get(next) {
            next += 1;
            let after = State::decode(code, cells, state.count);
            let usable = moves as usize >= config.min_moves
                && after.boxes[..after.count].iter().all(|&at| !floor.targets[at as usize]);
            if usable {
                candidates.push((moves, code));
            }
            if moves as usize >= config.max_moves || nodes.len() >= MOST_BACKWARD {
                continue;
            }
            for direction in Direction::ALL {
                let before = floor.beside[after.player as usize][opposite(direction) as usize];
                if before == WALL || after.box_at(before).is_some() {
                    continue;
                }
                let mut reached = |state: State| {
                    let code = state.code(cells);
                    if seen.insert(code) {
                        nodes.push((code, moves + 1));
                    }
                };
                reached(State { player: before, ..after });
                let ahead = floor.beside[after.player as usize][direction as usize];
                if let Some(index) = (ahead != WALL).then(|| after.box_at(ahead)).flatten() {
                    let mut pulled = State { player: before, ..after };
                    pulled.shift(index, after.player);
                    reached(pulled);
                }
            }
        }
        let lengths = candidates.chunk_by(|left, right| left.0 == right.0);
        let lengths: Vec<&[(u32, u64)]> = lengths.collect();
        let of_one_length = *rng.choose(&lengths)?;
        let (_, code) = *rng.choose(of_one_length)?;
        Some(State::decode(code, cells, state.count))
    }
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
        Direction::Left => Direction::Right,
        Direction::Right => Direction::Left,
    }
}

/// Carves a room by a random walk, which is sometimes two cells wide. The number of floor cells is
/// random, but large enough for the boxes.
fn carve(config: &GeneratorConfig, boxes: usize, rng: &mut Rng) -> Option<(Vec<Cell>, Vec<usize>)> {
    let GeneratorConfig { width, height, .. } = *config;
    let (columns, rows) = (width.checked_sub(2)?, height.checked_sub(2)?);
    let inside = columns * rows;
    let least = (2 * boxes + 2).max(inside * 2 / 5);
    if least > inside {
        return None;
    }
    let wanted = least + rng.below(inside - least + 1);
    let mut cells = vec![Cell::Wall; width * height];
    let mut free = Vec::with_capacity(inside);
    let mut dig = |row: usize, column: usize, free: &mut Vec<usize>| {
        let at = row * width + column;
        if cells[at] == Cell::Wall {
            cells[at] = Cell::Floor;
            free.push(at);
        }
    };
    let (mut row, mut column) = (1 + rng.below(rows), 1 + rng.below(columns));
    let mut direction = Direction::ALL[rng.below(4)];
    dig(row, column, &mut free);
    while free.len() < wanted {
        if rng.chance(0.35) {
            direction = Direction::ALL[rng.below(4)];
        }
        let (down, right) = match direction {
            Direction::Up if row > 1 => (row - 1, column),
            Direction::Down if row < rows => (row + 1, column),
            Direction::Left if column > 1 => (row, column - 1),
            Direction::Right if column < columns => (row, column + 1),
            _ => {
                direction = Direction::ALL[rng.below(4)];
                continue;
            }
        };
        (row, column) = (down, right);
        dig(row, column, &mut free);
        if rng.chance(0.3) && free.len() < wanted {
            match rng.below(2) {
                0 if row < rows => dig(row + 1, column, &mut free),
                1 if column < columns => dig(row, column + 1, &mut free),
                _ => {}
            }
        }
    }
    Some((cells, free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_what_was_asked_for_and_repeat() {
        let config = GeneratorConfig {
            min_boxes: 1,
            max_boxes: 3,
            min_moves: 3,
            max_moves: 14,
            ..GeneratorConfig::default()
        };
        let (mut generator, mut again) = (Generator::default(), Generator::default());
        let mut lengths = std::collections::BTreeMap::new();
        for index in 0..90 {
            let level = generator.level(&config, index).unwrap();
            assert_eq!(level.room.boxes(), 1 + index as usize % 3);
            assert_eq!(level.room.on_target(), 0);
            assert!((3..=14).contains(&level.solution.len()));
            let mut room = level.room.clone();
            assert!(level.solution.iter().fold(false, |_, &direction| room.act(direction).solved));
            assert_eq!(again.level(&config, index).unwrap(), level);
            *lengths.entry(level.solution.len()).or_insert(0) += 1;
        }
        assert!(lengths.len() > 9, "{lengths:?}");
        let other = GeneratorConfig { seed: 1, ..config.clone() };
        assert_ne!(generator.level(&other, 0).unwrap(), generator.level(&config, 0).unwrap());
    }

    #[test]
    fn other_sizes_and_what_is_too_hard() {
        let mut generator = Generator::default();
        let wide = GeneratorConfig {
            width: 10,
            height: 7,
            min_boxes: 2,
            max_boxes: 2,
            max_moves: 30,
            ..GeneratorConfig::default()
        };
        let level = generator.level(&wide, 3).unwrap();
        assert_eq!((level.room.width(), level.room.height()), (10, 7));
        let hard = GeneratorConfig {
            width: 4,
            height: 4,
            min_moves: 100,
            max_moves: 100,
            ..GeneratorConfig::default()
        };
        let error = generator.level(&hard, 0).unwrap_err().to_string();
        assert!(error.contains("generator.min_moves"), "{error}");
    }
}
