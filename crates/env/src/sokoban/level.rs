//! Levels from text and files.

use std::path::Path;

use serde::Deserialize;
use turnwise_core::{EnvError, digest};

use super::room::{Cell, Room};
use super::solver::{Solution, Solver};

/// Parses a level from lines of symbols: either RAGEN's (`#_O√XPS`) or the common symbols
/// (`# .*$@+`, with `-` as another floor symbol).
///
/// # Errors
/// Fails for an unknown symbol or an invalid level ([`Room::new`]).
pub fn parse(text: &str) -> Result<Room, String> {
    let rows: Vec<&str> = text.lines().collect();
    let mut cells = Vec::with_capacity(text.len());
    let width = rows.first().map_or(0, |row| row.chars().count());
    for (number, row) in (1..).zip(&rows) {
        for (column, symbol) in (1..).zip(row.chars()) {
            cells.push(cell(symbol).ok_or_else(|| {
                format!("row {number}, column {column}: {symbol:?} is none of the symbols #_O√XPS or # .*$@+")
            })?);
        }
        let length = row.chars().count();
        if length != width {
            return Err(format!(
                "row {number} has {length} cells and the first one {width}; fill it with walls"
            ));
        }
    }
    Room::new(width, cells)
}

fn cell(symbol: char) -> Option<Cell> {
    Some(match symbol {
        '#' => Cell::Wall,
        '_' | ' ' | '-' => Cell::Floor,
        'O' | '.' => Cell::Target,
        '√' | '*' => Cell::BoxOnTarget,
        'X' | '$' => Cell::Box,
        'P' | '@' => Cell::Player,
        'S' | '+' => Cell::PlayerOnTarget,
        _ => return None,
    })
}

/// A recorded room: its fixed cells and its state, as in gym-sokoban.
#[derive(Deserialize)]
pub(super) struct RecordedRoom {
    room_fixed: Vec<Vec<u64>>,
    room_state: Vec<Vec<u64>>,
}

impl RecordedRoom {
    pub(super) fn room(&self) -> Result<Room, String> {
        let width = self.room_state.first().map_or(0, Vec::len);
        if self.room_fixed.len() != self.room_state.len() {
            return Err(format!(
                "room_fixed has {} rows and room_state {}",
                self.room_fixed.len(),
                self.room_state.len()
            ));
        }
        let mut cells = Vec::with_capacity(width * self.room_state.len());
        for (row, (fixed, state)) in (1..).zip(self.room_fixed.iter().zip(&self.room_state)) {
            if state.len() != width || fixed.len() != width {
                return Err(format!(
                    "row {row} has {} cells in room_state and {} in room_fixed, the first one {width}",
                    state.len(),
                    fixed.len()
                ));
            }
            for (column, (&fixed, &state)) in (1..).zip(fixed.iter().zip(state)) {
                let known = |number: u64| {
                    Cell::of(number).ok_or_else(|| {
                        format!("row {row}, column {column}: {number} is no cell; there are 0 to 6")
                    })
                };
                let (fixed, state) = (known(fixed)?, known(state)?);
                cells.push(if state == Cell::Player && fixed.is_target() {
                    Cell::PlayerOnTarget
                } else {
                    state
                });
            }
        }
        Room::new(width, cells)
    }
}

/// Reads levels: JSON Lines with `room_fixed` and `room_state`, or lines of symbols with empty
/// lines between levels and comments after `;`. The file may be zstd-compressed.
///
/// # Errors
/// Fails if the file is unreadable, or a level is invalid, unsolvable or already solved.
pub fn read(path: &Path) -> Result<Vec<Room>, EnvError> {
    let name = path.display().to_string();
    let failed = |source| EnvError::Io { path: name.clone(), source };
    let mut lines = Vec::new();
    for line in turnwise_files::lines(turnwise_files::open(path).map_err(failed)?) {
        lines.push(line.map_err(|source| match source.kind() {
            std::io::ErrorKind::InvalidData => EnvError::File {
                path: format!("{name}, line {}", lines.len() + 1),
                reason: "this is no UTF-8 text".to_owned(),
            },
            _ => failed(source),
        })?);
    }
    let levels = levels(&lines)
        .map_err(|(line, reason)| EnvError::File { path: format!("{name}, line {line}"), reason })?;
    if levels.is_empty() {
        return Err(EnvError::File { path: name, reason: "there are no levels in this file".to_owned() });
    }
    Ok(levels)
}

fn levels(lines: &[String]) -> Result<Vec<Room>, (usize, String)> {
    let mut solver = Solver::default();
    let mut found = Vec::new();
    let mut checked = |line: usize, room: Result<Room, String>| {
        let room = room.map_err(|reason| (line, reason))?;
        if room.is_solved() {
            // Any first move would win.
            return Err((
                line,
                "all boxes of this level are on targets at its start; leave it out".to_owned(),
            ));
        }
        match solver.solve(&room) {
            Solution::Moves(_) => {
                found.push(room);
                Ok(())
            }
            Solution::Unsolvable => Err((line, "this level cannot be solved; leave it out".to_owned())),
            Solution::TooLarge => Err((
                line,
                format!("this level is not solved after {} states; leave it out", solver.most_states()),
            )),
        }
    };
    let mut rows: Vec<&str> = Vec::new();
    for (number, line) in (1..).zip(lines.iter().map(String::as_str).chain([""])) {
        let line = line.trim_end_matches('\r');
        if line.starts_with('{') {
            let recorded = serde_json::from_str::<RecordedRoom>(line)
                .map_err(|error| (number, format!("this is no recorded level: {error}")))?;
            checked(number, recorded.room())?;
        } else if line.trim().is_empty() {
            if !rows.is_empty() {
                checked(number - rows.len(), parse(&rows.join("\n")))?;
                rows.clear();
            }
        } else if !line.starts_with(';') {
            rows.push(line);
        }
    }
    Ok(found)
}

/// Hashes a level, ignoring rotation, reflection, translation and unreachable cells.
pub(crate) fn level_digest(room: &Room) -> String {
    least_digest(room, |cell| cell)
}

/// Like [`level_digest`], but ignores the player's position.
pub(crate) fn room_digest(room: &Room) -> String {
    least_digest(room, |cell| if cell.is_player() { cell.emptied() } else { cell })
}

/// Returns the smallest digest among the room's eight rotations and reflections.
fn least_digest(room: &Room, as_cell: impl Fn(Cell) -> Cell) -> String {
    let reachable = room.reachable();
    let (mut top, mut bottom, mut left, mut right) = (usize::MAX, 0, usize::MAX, 0);
    for &at in &reachable {
        let (row, column) = (at / room.width(), at % room.width());
        (top, bottom) = (top.min(row), bottom.max(row));
        (left, right) = (left.min(column), right.max(column));
    }
    let (height, width) = (bottom - top + 1, right - left + 1);
    let mut cells = vec![Cell::Wall; height * width];
    for at in reachable {
        let (row, column) = (at / room.width() - top, at % room.width() - left);
        cells[row * width + column] = as_cell(room.cells()[at]);
    }
    let place = |turn: usize, row: usize, column: usize| {
        let (row, column) = if turn & 4 == 0 { (row, column) } else { (column, row) };
        let row = if turn & 1 == 0 { row } else { height - 1 - row };
        let column = if turn & 2 == 0 { column } else { width - 1 - column };
        row * width + column
    };
    let turned = (0..8).map(|turn| {
        let (rows, columns) = if turn & 4 == 0 { (height, width) } else { (width, height) };
        let mut turned = Vec::with_capacity(cells.len());
        for row in 0..rows {
            turned.extend((0..columns).map(|column| cells[place(turn, row, column)] as u8));
        }
        (rows, turned)
    });
    let least = turned.min();
    let (rows, cells) = least.unwrap_or_default();
    digest([&(rows as u64).to_le_bytes()[..], &cells])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn both_ways_to_write_a_level_are_read() {
        let text = "; two levels\n#####\n#PXO#\n#####\n\n\n######\n#@$ .#\n######";
        let rooms = levels(&lines(text)).unwrap();
        assert_eq!(
            rooms.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["#####\n#PXO#\n#####", "######\n#PX_O#\n######"]
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let good = "#####\n#PXO#\n#####\n\n";
        for (bad, line, expected) in [
            ("#####\n#_XO#\n#####", 5, "0 players"),
            ("#####\n#PXO#\n####", 5, "row 3 has 4 cells"),
            ("#####\n#PXQ#\n#####", 5, "row 2, column 4: 'Q'"),
            ("######\n#X_PO#\n######", 5, "cannot be solved"),
            ("######\n#P_√_#\n######", 5, "on targets at its start"),
            ("{\"room_fixed\": [[0]]}", 5, "no recorded level"),
            ("{\"room_fixed\": [[0, 1]], \"room_state\": [[0]]}", 5, "2 in room_fixed"),
            ("{\"room_fixed\": [[9]], \"room_state\": [[0]]}", 5, "9 is no cell"),
        ] {
            let (found, reason) = levels(&lines(&format!("{good}{bad}"))).unwrap_err();
            assert!(found == line && reason.contains(expected), "{bad}: line {found}: {reason}");
        }
    }

    #[test]
    fn turned_mirrored_and_shifted_levels_are_the_same() {
        let same = [
            "#####\n#PXO#\n#_###\n#####",
            "#####\n#OXP#\n###_#\n#####",
            "####\n#_P#\n##X#\n##O#\n####",
            "#####\n#_###\n#PXO#\n#####",
            "#######\n##PXO##\n##_####\n#######",
            "######\n######\n##O###\n##X###\n##P_##\n######",
            "#######\n#PXO#_#\n#_#####\n#######",
        ];
        let digests: Vec<String> = same.map(|rows| level_digest(&parse(rows).unwrap())).to_vec();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
        for other in ["#####\n#PXO#\n#####", "#####\n#_XO#\n#P###\n#####", "#####\n#PXO#\n##_##\n#####"] {
            assert_ne!(digests[0], level_digest(&parse(other).unwrap()), "{other}");
        }
    }

    #[test]
    fn a_room_is_the_same_wherever_its_player_starts() {
        let same = [
            "######\n#P_XO#\n#_####\n######",
            "######\n#__XO#\n#P####\n######",
            "######\n#__XS#\n#_####\n######",
            "#######\n##_####\n##P_XO#\n#######",
        ];
        let rooms = same.map(|rows| parse(rows).unwrap());
        assert!(rooms.iter().all(|room| room_digest(room) == room_digest(&rooms[0])));
        let levels: std::collections::HashSet<String> = rooms[..3].iter().map(level_digest).collect();
        assert_eq!(levels.len(), 3);
        for other in ["######\n#PX_O#\n#_####\n######", "######\n#P_OX#\n#_####\n######"] {
            assert_ne!(room_digest(&parse(other).unwrap()), room_digest(&rooms[0]), "{other}");
        }
    }
}
