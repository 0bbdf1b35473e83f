pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn text(&self) -> String {
        let columns = self.header.len();
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.header]);
            cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = format!("{}\n\n", self.title);
        for row in [&self.header].into_iter().chain(&self.rows) {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(&format!("  {}\n", line.trim_end()));
        }
        text
    }

    pub(crate) fn markdown(&self) -> String {
        let escape = |cell: &String| cell.replace('|', "\\|");
        let line =
            |row: &[String]| format!("| {} |\n", row.iter().map(escape).collect::<Vec<_>>().join(" | "));
        let mut text = format!("**{}**\n\n", self.title);
        text.push_str(&line(&self.header));
        text.push_str(&format!("|{}\n", "---|".repeat(self.header.len())));
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
    }
}

/// Quotes a CSV cell if needed (RFC 4180).
pub(crate) fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_escaped_where_their_form_needs_it() {
        assert_eq!(
            (quoted("a,b"), quoted("a \"b\""), quoted("a")),
            ("\"a,b\"".into(), "\"a \"\"b\"\"\"".into(), "a".into())
        );
        let words = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        let table = Table { title: "T".into(), header: words(["a", "b"]), rows: vec![words(["c|d", "e"])] };
        assert_eq!(table.text(), "T\n\n  a    b\n  c|d  e\n");
        assert_eq!(table.markdown(), "**T**\n\n| a | b |\n|---|---|\n| c\\|d | e |\n");
    }
}
