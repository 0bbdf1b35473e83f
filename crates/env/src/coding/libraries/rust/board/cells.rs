//! The board.

use std::fmt;

/// Rows of letters of the same length.
#[derive(Clone, PartialEq, Eq)]
pub struct Board {
    rows: Vec<Vec<char>>,
}

/// Reads a board with rows divided by `/`; short rows are filled up with dots.
pub fn parse(text: &str) -> Board {
    let mut rows: Vec<Vec<char>> = text.split('/').map(|row| row.chars().collect()).collect();
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    for row in &mut rows {
        while row.len() < width {
            row.push('.');
        }
    }
    Board { rows }
}

impl Board {
    pub fn height(&self) -> usize {
        self.rows.len()
    }

    pub fn width(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    pub fn at(&self, row: usize, column: usize) -> char {
        self.rows[row][column]
    }

    pub fn set(&mut self, row: usize, column: usize, letter: char) {
        self.rows[row][column] = letter;
    }

    /// Returns the letter of a cell; `None` outside of the board.
    pub fn get(&self, row: i64, column: i64) -> Option<char> {
        if row < 0 || column < 0 {
            return None;
        }
        self.rows.get(row as usize)?.get(column as usize).copied()
    }

    /// Returns the board turned by a quarter to the right.
    pub fn turned(&self) -> Board {
        let mut rows = Vec::new();
        for column in 0..self.width() {
            rows.push((0..self.height()).rev().map(|row| self.at(row, column)).collect());
        }
        Board { rows }
    }

    /// Counts the cells with a letter.
    pub fn count(&self, letter: char) -> usize {
        self.rows.iter().flatten().filter(|cell| **cell == letter).count()
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<String> = self.rows.iter().map(|row| row.iter().collect()).collect();
        write!(to, "{}", rows.join("/"))
    }
}
