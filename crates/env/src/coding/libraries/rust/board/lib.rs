//! A board of letters: regions, moves and cells that live by their neighbours.

mod cells;
mod life;
mod routes;

pub use cells::{Board, parse};
pub use life::{alive, step};
pub use routes::{distance, region, regions};

#[cfg(test)]
mod tests;

/// Returns the length of the longest line of one letter, in rows, columns and both diagonals.
pub fn longest_line(board: &Board, letter: char) -> usize {
    let mut best = 0;
    for row in 0..board.height() {
        for column in 0..board.width() {
            for (down, right) in [(0, 1), (1, 0), (1, 1), (1, -1)] {
                let mut length = 0;
                let (mut y, mut x) = (row as i64, column as i64);
                while board.get(y, x) == Some(letter) {
                    length = length + 1;
                    y = y + down;
                    x = x + right;
                }
                best = best.max(length);
            }
        }
    }
    best
}

/// Lets all letters fall down through the dots below them.
pub fn fall(board: &Board) -> Board {
    let mut fallen = board.clone();
    for column in 0..board.width() {
        let letters: Vec<char> = (0..board.height()).map(|row| board.at(row, column)).filter(|letter| *letter != '.').collect();
        let empty = board.height() - letters.len();
        for row in 0..board.height() {
            let letter = if row < empty { '.' } else { letters[row - empty] };
            fallen.set(row, column, letter);
        }
    }
    fallen
}
