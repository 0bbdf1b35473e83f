use std::cmp::Reverse;
use std::ops::Range;

use super::kernels::TILE;
use super::memory::Tile;

pub(crate) fn query_tiles(sequences: &[Range<usize>]) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for sequence in sequences {
        for first in sequence.clone().step_by(TILE) {
            tiles.push(Tile {
                query_row: first as i32,
                queries: TILE.min(sequence.end - first) as i32,
                key_row: sequence.start as i32,
                position: (first - sequence.start) as i32,
            });
        }
    }
    tiles.sort_by_key(|tile| Reverse(tile.position));
    tiles
}

/// Returns tiles of keys, each with its first row, its number of rows, and the first row and length
/// of its sequence. Tiles that more queries attend to come first.
pub(crate) fn key_tiles(sequences: &[Range<usize>]) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for sequence in sequences {
        for first in sequence.clone().step_by(TILE) {
            tiles.push(Tile {
                query_row: first as i32,
                queries: TILE.min(sequence.end - first) as i32,
                key_row: sequence.start as i32,
                position: sequence.len() as i32,
            });
        }
    }
    tiles.sort_by_key(|tile| Reverse(tile.position - (tile.query_row - tile.key_row)));
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_once_and_start_with_the_longest_work() {
        let sequences = [0..70, 70..71, 71..71, 71..199];
        for tiles in [query_tiles(&sequences), key_tiles(&sequences)] {
            let mut rows: Vec<i32> =
                tiles.iter().flat_map(|tile| tile.query_row..tile.query_row + tile.queries).collect();
            rows.sort_unstable();
            assert_eq!(rows, (0..199).collect::<Vec<i32>>());
            assert!(tiles.iter().all(|tile| (1..=64).contains(&tile.queries)));
        }
        assert_eq!(query_tiles(&sequences)[0], Tile { query_row: 64, queries: 6, key_row: 0, position: 64 });
        assert_eq!(key_tiles(&sequences)[0], Tile { query_row: 71, queries: 64, key_row: 71, position: 128 });
    }
}
