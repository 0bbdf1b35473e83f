//! Passages, hits and the retriever trait.

use std::sync::Arc;

use crate::RetrievalError;

/// A passage, as in wiki-18 (`{"id", "contents"}`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Passage {
    /// Unique id.
    pub id: String,
    /// The title, usually quoted, then a newline and the text.
    pub contents: String,
}

impl Passage {
    /// Returns the first line, usually the quoted title.
    pub fn title(&self) -> &str {
        self.contents.split_once('\n').map_or(self.contents.as_str(), |(title, _)| title)
    }

    /// Returns everything after the first newline.
    pub fn text(&self) -> &str {
        self.contents.split_once('\n').map_or("", |(_, text)| text)
    }
}

/// A search result.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Shared passage.
    pub passage: Arc<Passage>,
    /// Score; higher is better. Scores are comparable only within one result list.
    pub score: f32,
}

/// Finds passages. All trajectories share one retriever, which many threads call.
pub trait Retriever: Send + Sync {
    /// Returns up to `top_k` passages per query, best first.
    ///
    /// # Errors
    ///
    /// Fails as a whole if any query fails; [`RetrievalError::is_transient`] tells whether a retry
    /// may succeed.
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError>;
}

impl<R: Retriever + ?Sized> Retriever for Arc<R> {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        (**self).search(queries, top_k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_newline_ends_the_title() {
        let passage = |contents: &str| Passage { id: "7".into(), contents: contents.into() };
        let two = passage("\"A Title\"\nThe text.\nIts second line.");
        assert_eq!((two.title(), two.text()), ("\"A Title\"", "The text.\nIts second line."));
        let one = passage("A line");
        assert_eq!((one.title(), one.text()), ("A line", ""));
        let none = passage("\ntext");
        assert_eq!((none.title(), none.text()), ("", "text"));
    }
}
