//! Requests and responses of Search-R1's `POST /retrieve`.
//!
//! ```text
//! {"queries": ["..", ".."], "topk": 3, "return_scores": true}
//! {"result": [[{"document": {"id": "0", "contents": "\"Title\"\nText"}, "score": 1.5}, ..], ..]}
//! {"result": [[{"id": "0", "contents": ".."}, ..], ..]}            without return_scores
//! ```
//!
//! The server also accepts the key `query` (sent by verl-agent and SkyRL), and a single text
//! instead of a list. If `topk` is missing, the server's default applies; `return_scores` defaults
//! to false. In responses, `id` may be a number or missing.

use std::sync::Arc;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;
use turnwise_retrieval::{Hit, Passage};

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Search texts.
    pub queries: Vec<String>,
    /// Passages per query; `None` for the server's default.
    pub top_k: Option<usize>,
    /// Return scores.
    pub return_scores: bool,
}

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Texts {
            One(String),
            Many(Vec<String>),
        }
        #[derive(Deserialize)]
        struct Raw {
            queries: Option<Texts>,
            query: Option<Texts>,
            topk: Option<usize>,
            return_scores: Option<bool>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let texts = raw.queries.or(raw.query);
        let queries = match texts.ok_or_else(|| D::Error::custom("missing field `queries` (or `query`)"))? {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        };
        Ok(Self { queries, top_k: raw.topk, return_scores: raw.return_scores.unwrap_or(false) })
    }
}

#[derive(Serialize)]
struct Document<'a> {
    id: &'a str,
    contents: &'a str,
}

#[derive(Serialize)]
struct Scored<'a> {
    document: Document<'a>,
    score: f32,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Scored(Scored<'a>),
    Bare(Document<'a>),
}

/// Returns a response body. Scores that are not finite become 0.
///
/// # Errors
/// Never fails, because all values can be written as JSON.
pub fn answer(lists: &[Vec<Hit>], return_scores: bool) -> Result<Vec<u8>, serde_json::Error> {
    let mut body = Vec::new();
    write_answer(&mut body, lists, return_scores)?;
    Ok(body)
}

/// Returns a response body, unless it exceeds `most` bytes.
pub(crate) fn answer_within(
    lists: &[Vec<Hit>],
    return_scores: bool,
    most: usize,
) -> Result<Option<Vec<u8>>, serde_json::Error> {
    struct Bounded {
        body: Vec<u8>,
        most: usize,
    }
    impl std::io::Write for Bounded {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if bytes.len() > self.most - self.body.len() {
                return Err(std::io::ErrorKind::FileTooLarge.into());
            }
            self.body.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut bounded = Bounded { body: Vec::new(), most };
    match write_answer(&mut bounded, lists, return_scores) {
        Ok(()) => Ok(Some(bounded.body)),
        Err(error) if error.is_io() => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_answer(
    body: impl std::io::Write,
    lists: &[Vec<Hit>],
    return_scores: bool,
) -> Result<(), serde_json::Error> {
    #[derive(Serialize)]
    struct Answer<'a> {
        result: Vec<Vec<Item<'a>>>,
    }
    let result = lists
        .iter()
        .map(|list| {
            list.iter()
                .map(|hit| {
                    let document = Document { id: &hit.passage.id, contents: &hit.passage.contents };
                    // JSON has no infinity.
                    let score = if hit.score.is_finite() { hit.score } else { 0.0 };
                    if return_scores {
                        Item::Scored(Scored { document, score })
                    } else {
                        Item::Bare(document)
                    }
                })
                .collect()
        })
        .collect();
    serde_json::to_writer(body, &Answer { result })
}

/// Parses a response to `queries` queries, with up to `top_k` passages each. A missing id is
/// replaced by 16 hexadecimal digits of the contents' SHA-256, and a missing score by 0.
///
/// # Errors
///
/// Returns the problem as a sentence.
pub fn read_answer(body: &[u8], queries: usize, top_k: usize) -> Result<Vec<Vec<Hit>>, String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Id {
        Text(String),
        Number(i64),
    }
    #[derive(Deserialize)]
    struct Document {
        id: Option<Id>,
        contents: String,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Item {
        Scored { document: Document, score: Option<f32> },
        Bare(Document),
    }
    #[derive(Deserialize)]
    struct Answer {
        result: Vec<Vec<Item>>,
    }
    let Answer { result } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if result.len() != queries {
        return Err(format!("{} lists for {queries} queries", result.len()));
    }
    let hit = |item: Item| {
        let (document, score) = match item {
            Item::Scored { document, score } => (document, score),
            Item::Bare(document) => (document, None),
        };
        let Document { id, contents } = document;
        let id = match id {
            Some(Id::Text(id)) => id,
            Some(Id::Number(id)) => id.to_string(),
            None => hexadecimal(&Sha256::digest(contents.as_bytes())).chars().take(16).collect(),
        };
        Hit { passage: Arc::new(Passage { id, contents }), score: score.unwrap_or(0.0) }
    };
    Ok(result.into_iter().map(|list| list.into_iter().take(top_k).map(hit).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Result<Request, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn both_spellings_are_read() {
        let expected = Request { queries: vec!["a".into(), "b".into()], top_k: Some(3), return_scores: true };
        for key in ["queries", "query"] {
            let text = format!(r#"{{"{key}": ["a", "b"], "topk": 3, "return_scores": true, "more": 1}}"#);
            assert_eq!(request(&text).unwrap(), expected);
        }
        let bare = request(r#"{"query": "a", "topk": null}"#).unwrap();
        assert_eq!(bare, Request { queries: vec!["a".into()], top_k: None, return_scores: false });
        for (wrong, expected) in [
            ("{}", "`queries` (or `query`)"),
            (r#"{"queries": [1]}"#, "did not match"),
            (r#"{"queries": ["a"], "topk": -1}"#, "invalid value"),
            ("[", "EOF"),
        ] {
            let error = request(wrong).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    fn hits() -> Vec<Vec<Hit>> {
        let hit = |id: &str, score: f32| Hit {
            passage: Arc::new(Passage { id: id.into(), contents: format!("\"T\"\n{id} é") }),
            score,
        };
        vec![vec![hit("a", 1.5), hit("b", 0.25)], vec![]]
    }

    #[test]
    fn what_is_written_is_read() {
        let scored = answer(&hits(), true).unwrap();
        assert_eq!(read_answer(&scored, 2, 5).unwrap(), hits());
        assert_eq!(read_answer(&scored, 2, 1).unwrap()[0].len(), 1);
        let bare = answer(&hits(), false).unwrap();
        let text = String::from_utf8(bare.clone()).unwrap();
        assert_eq!(
            text,
            r#"{"result":[[{"id":"a","contents":"\"T\"\na é"},{"id":"b","contents":"\"T\"\nb é"}],[]]}"#
        );
        let read = read_answer(&bare, 2, 5).unwrap();
        assert_eq!((read[0][1].passage.clone(), read[0][1].score), (hits()[0][1].passage.clone(), 0.0));
    }

    #[test]
    fn an_answer_has_a_greatest_size() {
        let whole = answer(&hits(), true).unwrap();
        assert_eq!(answer_within(&hits(), true, whole.len()).unwrap(), Some(whole.clone()));
        for most in [0, 10, whole.len() - 1] {
            assert_eq!(answer_within(&hits(), true, most).unwrap(), None);
        }
    }

    #[test]
    fn the_originals_variants_are_read() {
        let read = |text: &str, queries: usize| read_answer(text.as_bytes(), queries, 9);
        // The lexical server returns title and text, but no id.
        let lexical =
            r#"{"result":[[{"document":{"title":"T","text":"x","contents":"\"T\"\nx"},"score":3.5}]]}"#;
        let found = &read(lexical, 1).unwrap()[0][0];
        assert_eq!((found.passage.title(), found.score), ("\"T\"", 3.5));
        assert_eq!(found.passage.id.len(), 16);
        let number = r#"{"result":[[{"id":7,"contents":"x"}]]}"#;
        assert_eq!(read(number, 1).unwrap()[0][0].passage.id, "7");
        for (wrong, queries, expected) in [
            (lexical, 2, "1 lists for 2 queries"),
            (r#"{"result":[[{"document":{"id":"1"},"score":1}]]}"#, 1, "did not match"),
            (r#"{"results":[]}"#, 0, "missing field `result`"),
            ("", 0, "EOF"),
            ("<html>", 0, "expected value"),
        ] {
            let error = read(wrong, queries).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
