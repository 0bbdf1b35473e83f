//! Passages, hits, and the trait that retrievers implement.

use std::sync::Arc;

use crate::RetrievalError;

/// A passage in a collection, in the format of wiki-18 (`{"id", "contents"}`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Passage {
    /// Id, unique within the collection.
    pub id: String,
    /// The title, usually in quotation marks, then a newline and the text.
    pub contents: String,
}

impl Passage {
    /// Returns the first line, usually the title in quotation marks.
    pub fn title(&self) -> &str {
        self.contents.split_once('\n').map_or(self.contents.as_str(), |(title, _)| title)
    }

    /// Returns everything after the first newline, or an empty string if there is no newline.
    pub fn text(&self) -> &str {
        self.contents.split_once('\n').map_or("", |(_, text)| text)
    }
}

/// A passage returned by a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The passage, shared with other results.
    pub passage: Arc<Passage>,
    /// Score; higher is better. Scores can only be compared within one result list.
    pub score: f32,
}

/// Finds passages. All trajectories share one retriever and call it from many threads.
pub trait Retriever: Send + Sync {
    /// For each query, in order, returns the best `top_k` passages, best first; there may be fewer.
    ///
    /// # Errors
    ///
    /// If any query fails, returns one [`RetrievalError`] for the whole call.
    /// [`RetrievalError::is_transient`] returns true if a retry may succeed.
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
