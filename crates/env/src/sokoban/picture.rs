//! Images of rooms. The tiles are built in or read from gym-sokoban's files.

use std::path::Path;

use turnwise_core::EnvError;

use super::room::{Cell, Room};
use crate::pictures::{Picture, png};

/// Side of a tile in pixels.
pub const TILE: usize = 16;

/// gym-sokoban's file names, in the order of [`Cell::ALL`].
const FILES: [&str; 7] =
    ["wall", "floor", "box_target", "box_on_target", "box", "player", "player_on_target"];

/// A tile per kind of cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiles([Picture; 7]);

impl Tiles {
    /// Creates the built-in tiles.
    pub fn own() -> Self {
        Self(Cell::ALL.map(draw))
    }

    /// Reads gym-sokoban's tiles: `wall.png`, `floor.png`, `box_target.png`, `box_on_target.png`,
    /// `box.png`, `player.png` and `player_on_target.png`.
    ///
    /// # Errors
    /// Fails if an image is missing, has another size or is not PNG.
    pub fn read(folder: &Path) -> Result<Self, EnvError> {
        let mut tiles = Self::own().0;
        for (tile, name) in tiles.iter_mut().zip(FILES) {
            let path = folder.join(format!("{name}.png"));
            *tile = png::read(&path)?;
            if (tile.width(), tile.height()) != (TILE, TILE) {
                return Err(EnvError::File {
                    path: path.display().to_string(),
                    reason: format!(
                        "it has {} x {} pixels; a tile has {TILE} x {TILE}",
                        tile.width(),
                        tile.height()
                    ),
                });
            }
        }
        Ok(Self(tiles))
    }

    /// Draws a room.
    pub fn render(&self, room: &Room) -> Picture {
        let mut picture = Picture::new(TILE * room.width(), TILE * room.height(), [0, 0, 0]);
        for (at, cell) in room.cells().iter().enumerate() {
            let (row, column) = (at / room.width(), at % room.width());
            picture.paste(&self.0[*cell as usize], TILE * column, TILE * row);
        }
        picture
    }
}

fn draw(cell: Cell) -> Picture {
    const ALL: (usize, usize, usize, usize) = (0, 0, TILE, TILE);
    let middle = |x: f32, y: f32| ((x - 8.0).abs(), (y - 8.0).abs());
    let mut tile = Picture::new(TILE, TILE, [38, 36, 44]);
    if cell == Cell::Wall {
        tile = Picture::new(TILE, TILE, [148, 92, 74]);
        tile.fill(ALL, [96, 60, 52], |_, y| (y % 4.0 - 0.5).abs() - 0.5);
        tile.fill(ALL, [96, 60, 52], |x, y| {
            let shift = if (y / 4.0) as i32 % 2 == 0 { 0.0 } else { 4.0 };
            ((x + shift) % 8.0 - 0.5).abs() - 0.5
        });
        return tile;
    }
    if cell.is_target() {
        tile.fill(ALL, [206, 60, 58], |x, y| {
            let (right, down) = middle(x, y);
            ((right + down) * std::f32::consts::FRAC_1_SQRT_2 - 4.2).abs() - 0.8
        });
        tile.fill(ALL, [206, 60, 58], |x, y| {
            let (right, down) = middle(x, y);
            right + down - 1.6
        });
    }
    if cell.is_box() {
        let wood = if cell == Cell::BoxOnTarget { [206, 92, 60] } else { [214, 168, 84] };
        let edge = [110, 74, 34];
        let side = |x: f32, y: f32| {
            let (right, down) = middle(x, y);
            right.max(down)
        };
        tile.fill(ALL, wood, |x, y| side(x, y) - 7.0);
        tile.fill(ALL, edge, |x, y| (side(x, y) - 6.3).abs() - 0.7);
        tile.fill((2, 2, 14, 14), edge, |x, y| {
            let (right, down) = middle(x, y);
            (right - down).abs() * std::f32::consts::FRAC_1_SQRT_2 - 0.8
        });
    }
    if cell.is_player() {
        let green = [108, 196, 104];
        tile.fill(ALL, green, |x, y| (x - 8.0).hypot(y - 7.2) - 4.6);
        tile.fill((4, 8, 12, 15), green, |x, y| (x - 8.0).abs().max((y - 11.0).abs()) - 3.4);
        for eye in [6.2, 9.8] {
            tile.fill(ALL, [24, 28, 24], |x, y| (x - eye).hypot(y - 6.6) - 1.1);
        }
    }
    tile
}

#[cfg(test)]
mod tests {
    use super::super::level::parse;
    use super::*;

    #[test]
    fn every_cell_looks_different_and_is_where_it_belongs() {
        let tiles = Tiles::own();
        for (index, tile) in tiles.0.iter().enumerate() {
            assert!(tiles.0[..index].iter().all(|other| other != tile), "{:?}", Cell::ALL[index]);
        }
        let room = parse("######\n#PX_O#\n######").unwrap();
        let picture = tiles.render(&room);
        assert_eq!((picture.width(), picture.height()), (96, 48));
        for (at, cell) in room.cells().iter().enumerate() {
            let (row, column) = (at / 6, at % 6);
            for (x, y) in [(0, 0), (8, 8), (15, 3)] {
                let expected = tiles.0[*cell as usize].pixel(x, y);
                assert_eq!(picture.pixel(16 * column + x, 16 * row + y), expected);
            }
        }
    }

    #[test]
    fn tiles_are_read_and_broken_ones_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let own = Tiles::own();
        let write = |name: &str, picture: &Picture| {
            std::fs::write(folder.path().join(name), png::encode(picture).unwrap()).unwrap();
        };
        for (tile, name) in own.0.iter().zip(FILES) {
            write(&format!("{name}.png"), tile);
        }
        assert_eq!(Tiles::read(folder.path()).unwrap(), own);
        write("player.png", &Picture::new(16, 15, [0, 0, 0]));
        let error = Tiles::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("player.png: it has 16 x 15 pixels"), "{error}");
        std::fs::write(folder.path().join("box.png"), b"broken").unwrap();
        let error = Tiles::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("box.png: this is no PNG picture"), "{error}");
        std::fs::remove_file(folder.path().join("wall.png")).unwrap();
        assert!(Tiles::read(folder.path()).unwrap_err().to_string().contains("wall.png"));
    }
}
