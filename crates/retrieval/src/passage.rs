//! Passages, hits, and the trait of all retrievers.

use std::sync::Arc;

use crate::RetrievalError;

/// A passage of a collection, as the files of wiki-18 have it (`{"id", "contents"}`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Passage {
    /// Identifier within the collection.
    pub id: String,
    /// Title, most often in quotation marks, then a newline and the text.
    pub contents: String,
}

impl Passage {
    /// Returns the first line, as it stands: `"Title"`. All of the contents where there is but one line.
    pub fn title(&self) -> &str {
        self.contents.split_once('\n').map_or(self.contents.as_str(), |(title, _)| title)
    }

    /// Everything after the first newline; empty if there is none.
    pub fn text(&self) -> &str {
        self.contents.split_once('\n').map_or("", |(_, text)| text)
    }
}

/// A passage that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The passage, shared with whoever else found it.
    pub passage: Arc<Passage>,
    /// Its score: higher is better, comparable within one list only.
    pub score: f32,
}

/// Finds passages. One retriever is shared by all trajectories and called from many threads.
pub trait Retriever: Send + Sync {
    /// For each query, in order, the best `top_k` passages or as many as there are, best first.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError`], for all queries of the call together; [`RetrievalError::is_transient`]
    /// says whether the same call may succeed later.
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
