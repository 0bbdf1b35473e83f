use super::room::{Cell, RoomText};

/// Maximum number of different rows; if there are more, single cells become phrases instead of
/// rows.
const MOST_ROWS: usize = 2048;

/// Returns phrases that a word-level tokenizer keeps as one token: all possible rows, or single
/// cells if there are too many rows or the text format contains spaces.
pub(super) fn phrases(text: RoomText, width: usize, boxes: usize) -> Vec<String> {
    let owned = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
    match text {
        RoomText::VerlAgent => owned(&[" # \t", " _ \t", " O \t", " √ \t", " X \t", " P \t", " S \t", "\n"]),
        RoomText::Ragen => {
            rows(width, boxes).unwrap_or_else(|| owned(&["#", "_", "O", "√", "X", "P", "S", "\n"]))
        }
    }
}

fn rows(width: usize, boxes: usize) -> Option<Vec<String>> {
    let mut found = vec![Vec::new()];
    for _ in 0..width.saturating_sub(2) {
        let mut longer = Vec::new();
        for row in &found {
            for cell in Cell::ALL {
                let mut row: Vec<Cell> = row.clone();
                row.push(cell);
                let count = |is: fn(Cell) -> bool| row.iter().filter(|cell| is(**cell)).count();
                if count(Cell::is_player) <= 1
                    && count(Cell::is_box) <= boxes
                    && count(Cell::is_target) <= boxes
                {
                    longer.push(row);
                }
            }
        }
        found = longer;
        if found.len() > MOST_ROWS {
            return None;
        }
    }
    let text = |row: Vec<Cell>| {
        let cells: String = row.into_iter().map(Cell::symbol).collect();
        format!("#{cells}#\n")
    };
    Some(found.into_iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rooms_have_their_rows_and_others_their_cells() {
        let rows = phrases(RoomText::Ragen, 6, 1);
        for row in ["######\n", "#_PX_#\n", "#S_X_#\n", "#√P__#\n", "#OXP##\n"] {
            assert!(rows.iter().any(|known| known == row), "{row}");
        }
        assert!(!rows.iter().any(|row| row == "#XX__#\n" || row == "#PS__#\n"));
        assert!((300..1000).contains(&rows.len()), "{}", rows.len());
        assert_eq!(phrases(RoomText::Ragen, 12, 1).len(), 8);
        assert_eq!(phrases(RoomText::VerlAgent, 6, 1)[0], " # \t");
    }
}
