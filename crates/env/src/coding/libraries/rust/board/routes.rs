//! Regions and shortest routes.

use std::collections::VecDeque;

use crate::cells::Board;

const SIDES: [(i64, i64); 4] = [(0, 1), (1, 0), (0, -1), (-1, 0)];

/// Returns the steps of the shortest route over dots to a cell; `None` if there is no route. Start and end may have any letter.
pub fn distance(board: &Board, from: (usize, usize), to: (usize, usize)) -> Option<usize> {
    let mut steps = vec![vec![None; board.width()]; board.height()];
    steps[from.0][from.1] = Some(0);
    let mut open = VecDeque::from([from]);
    while let Some((row, column)) = open.pop_front() {
        let so_far = steps[row][column]?;
        if (row, column) == to {
            return Some(so_far);
        }
        for (down, right) in SIDES {
            let (y, x) = (row as i64 + down, column as i64 + right);
            let Some(letter) = board.get(y, x) else { continue };
            let next = (y as usize, x as usize);
            if (letter == '.' || next == to) && steps[next.0][next.1].is_none() {
                steps[next.0][next.1] = Some(so_far + 1);
                open.push_back(next);
            }
        }
    }
    None
}

/// Returns the number of cells that are joined to a cell by its own letter.
pub fn region(board: &Board, from: (usize, usize)) -> usize {
    let mut seen = vec![vec![false; board.width()]; board.height()];
    fill(board, from, &mut seen)
}

fn fill(board: &Board, from: (usize, usize), seen: &mut [Vec<bool>]) -> usize {
    let letter = board.at(from.0, from.1);
    seen[from.0][from.1] = true;
    let mut open = vec![from];
    let mut size = 0;
    while let Some((row, column)) = open.pop() {
        size = size + 1;
        for (down, right) in SIDES {
            let (y, x) = (row as i64 + down, column as i64 + right);
            if board.get(y, x) == Some(letter) && !seen[y as usize][x as usize] {
                seen[y as usize][x as usize] = true;
                open.push((y as usize, x as usize));
            }
        }
    }
    size
}

/// Returns the sizes of all regions of a letter, largest first.
pub fn regions(board: &Board, letter: char) -> Vec<usize> {
    let mut seen = vec![vec![false; board.width()]; board.height()];
    let mut sizes = Vec::new();
    for row in 0..board.height() {
        for column in 0..board.width() {
            if board.at(row, column) == letter && !seen[row][column] {
                sizes.push(fill(board, (row, column), &mut seen));
            }
        }
    }
    sizes.sort();
    sizes.reverse();
    sizes
}
