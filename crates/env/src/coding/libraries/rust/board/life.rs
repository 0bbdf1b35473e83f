//! Cells that live by the number of their neighbours; `#` is alive.

use crate::cells::Board;

/// Counts the living neighbours of a cell, without the cell itself.
pub fn alive(board: &Board, row: usize, column: usize) -> usize {
    let mut count = 0;
    for down in -1..=1 {
        for right in -1..=1 {
            let itself = down == 0 && right == 0;
            if !itself && board.get(row as i64 + down, column as i64 + right) == Some('#') {
                count = count + 1;
            }
        }
    }
    count
}

/// Returns the next board: a cell lives with three neighbours, and stays alive with two.
pub fn step(board: &Board) -> Board {
    let mut next = board.clone();
    for row in 0..board.height() {
        for column in 0..board.width() {
            let neighbours = alive(board, row, column);
            let lives = neighbours == 3 || neighbours == 2 && board.at(row, column) == '#';
            next.set(row, column, if lives { '#' } else { '.' });
        }
    }
    next
}
