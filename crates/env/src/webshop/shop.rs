//! The shop itself: a catalogue and the search over it, shared by all environments.

use turnwise_core::EnvError;

use super::catalogue::Catalogue;

/// Products that a search returns at most.
pub const SEARCH_LIMIT: usize = 50;

/// Ranks the products of a catalogue for a query.
pub trait Ranker: Send + Sync + std::fmt::Debug {
    /// Returns the identifiers of the best products, best first, at most `limit`.
    ///
    /// # Errors
    /// Fails if the search cannot be done, for example because its index is damaged.
    fn rank(&self, query: &str, limit: usize) -> Result<Vec<String>, EnvError>;
}

/// A catalogue with its search. Never changes.
#[derive(Debug)]
pub struct Shop {
    catalogue: Catalogue,
    ranker: Box<dyn Ranker>,
    shows_attributes: bool,
}

impl Shop {
    /// Creates a shop over a catalogue. `shows_attributes`: whether product pages have a button to their
    /// attributes (the original's `show_attrs`, off by default).
    pub fn new(catalogue: Catalogue, ranker: Box<dyn Ranker>, shows_attributes: bool) -> Self {
        Self { catalogue, ranker, shows_attributes }
    }

    /// Returns the products.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Returns true if product pages have a button to their attributes.
    pub fn shows_attributes(&self) -> bool {
        self.shows_attributes
    }

    /// Returns the results of a search, best first, as indices into the catalogue.
    ///
    /// A first word `<r>`, `<c>` or `<q>` asks for random products, a category or a kind of
    /// product, as in the original. Differs from the original: random products are fixed by the
    /// query (every n-th product). `<a>`, which lists products of an attribute on the website, is
    /// an ordinary search: attributes define the score, and in the original's text environment that
    /// search fails.
    ///
    /// # Errors
    /// Fails if the ranker fails, or a product that `<c>` or `<q>` looks at cannot be read.
    pub fn search(&self, query: &str) -> Result<Vec<u32>, EnvError> {
        let (first, rest) = query.split_once(' ').unwrap_or((query, ""));
        let rest = crate::python::strip(rest);
        match first {
            "<r>" => {
                let count = self.catalogue.len();
                let stride = count.div_ceil(SEARCH_LIMIT).max(1);
                let start = rest.len() % stride;
                Ok((start..count).step_by(stride).take(SEARCH_LIMIT).map(|index| index as u32).collect())
            }
            "<c>" => {
                let category = rest.split(' ').next().unwrap_or_default();
                self.catalogue.filter(|product| product.category == category)
            }
            "<q>" => self.catalogue.filter(|product| product.query == rest),
            _ => {
                let ranked = self.ranker.rank(query, SEARCH_LIMIT)?;
                Ok(ranked.iter().filter_map(|asin| self.catalogue.find(asin)).collect())
            }
        }
    }
}
