//! Recorded queries and results in the original's format.
//!
//! Query files are JSON Lines with the key `query`. Recordings have lines
//! `{"query", "tokens", "hits"}` with the analyzed terms of the query and hits
//! `[asin, catalogue index, score]`. As in Anserini, scores have four decimals. Among equal scores,
//! each is printed a millionth lower than the one before it (`printed_scores`).

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

use super::{Hit, SearchError, SearchIndex};

/// A query with its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Query text.
    pub query: String,
    /// Analyzed terms of the query.
    pub tokens: Vec<String>,
    /// ASIN, catalogue index and printed score, best first.
    pub hits: Vec<(String, u32, f32)>,
}

/// Returns the scores that Anserini's `ScoreTiesAdjusterReranker` gives to sorted results.
pub(crate) fn printed_scores(hits: &[Hit]) -> Vec<f32> {
    let mut printed = Vec::with_capacity(hits.len());
    let (mut last, mut ties) = (None, 0_u32);
    for hit in hits {
        let rounded = ((f64::from(hit.score) * 1e4).round() / 1e4) as f32;
        ties = if last == Some(rounded) { ties + 1 } else { 0 };
        last = Some(rounded);
        printed.push(rounded - 1e-6 * ties as f32);
    }
    printed
}

/// Searches the index.
///
/// # Errors
/// Fails like [`SearchIndex::search`].
pub fn answer(index: &SearchIndex, query: &str, limit: usize) -> Result<Answer, SearchError> {
    let hits = index.search(query, limit)?;
    let printed = printed_scores(&hits);
    Ok(Answer {
        query: query.to_owned(),
        tokens: index.analyzer().terms(query),
        hits: hits.into_iter().zip(printed).map(|(hit, score)| (hit.name, hit.position, score)).collect(),
    })
}

/// Writes a line with the results of each query in `queries`, and returns the number of queries.
///
/// # Errors
/// Returns [`SearchError::Line`] if a line is invalid or cannot be read or written, or the error of
/// a failed search.
pub fn record(
    name: &str,
    queries: impl BufRead,
    index: &SearchIndex,
    limit: usize,
    out: &mut dyn Write,
) -> Result<usize, SearchError> {
    #[derive(Deserialize)]
    struct Query {
        query: String,
    }
    let mut count = 0;
    for (line, text) in queries.lines().enumerate() {
        let failed = |reason: String| SearchError::Line { name: name.to_owned(), line: line + 1, reason };
        let text = text.map_err(|error| failed(error.to_string()))?;
        if text.trim().is_empty() {
            continue;
        }
        let Query { query } = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let answer = answer(index, &query, limit)?;
        serde_json::to_writer(&mut *out, &answer).map_err(|error| failed(error.to_string()))?;
        out.write_all(b"\n").map_err(|error| failed(error.to_string()))?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_scores_tell_ties_apart() {
        let hits =
            [2.00004_f32, 2.00001, 1.99996, 1.5].map(|score| Hit { position: 0, name: String::new(), score });
        assert_eq!(printed_scores(&hits), [2.0, 2.0 - 1e-6, 2.0 - 2e-6, 1.5]);
    }

    #[test]
    fn a_line_that_is_no_query_is_named() {
        let shoes = [("B1", "blue running shoes"), ("B3", "red shoes"), ("B4", "socks"), ("B2", "a kettle")];
        let index = SearchIndex::build_in_memory(shoes).unwrap();
        let mut out = Vec::new();
        let text = "{\"query\": \"kettle\", \"goal\": 3}\n\n{\"question\": \"kettle\"}\n";
        let error = record("queries.jsonl", text.as_bytes(), &index, 5, &mut out).unwrap_err();
        assert!(error.to_string().starts_with("queries.jsonl, line 3: missing field `query`"), "{error}");
        let line = String::from_utf8(out).unwrap();
        assert!(line.starts_with(r#"{"query":"kettle","tokens":["kettl"],"hits":[["B2",3,"#), "{line}");
    }
}
