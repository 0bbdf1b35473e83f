//! A catalogue and its search engine, shared by all environments.

use turnwise_core::EnvError;

use super::catalogue::Catalogue;

/// Maximum number of search results.
pub(crate) const SEARCH_LIMIT: usize = 50;

/// Ranks a catalogue's products for a query.
pub trait Ranker: Send + Sync + std::fmt::Debug {
    /// Returns the ASINs of the best products in order, at most `limit`.
    ///
    /// # Errors
    /// Fails if the search fails, for example because an index is damaged.
    fn rank(&self, query: &str, limit: usize) -> Result<Vec<String>, EnvError>;
}

/// An immutable catalogue with a search engine.
#[derive(Debug)]
pub struct Shop {
    catalogue: Catalogue,
    ranker: Box<dyn Ranker>,
    shows_attributes: bool,
}

impl Shop {
    /// Creates a shop. `shows_attributes` adds a button to product pages that shows attributes. In
    /// the original, the button is enabled with `show_attrs`, which is off by default.
    pub fn new(catalogue: Catalogue, ranker: Box<dyn Ranker>, shows_attributes: bool) -> Self {
        Self { catalogue, ranker, shows_attributes }
    }

    /// Returns the products.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Returns true if product pages have a button that shows attributes.
    pub(crate) fn shows_attributes(&self) -> bool {
        self.shows_attributes
    }

    /// Returns search results as catalogue indices, best first.
    ///
    /// As in the original, queries that start with `<r>`, `<c>` or `<q>` request random products, a
    /// category or a type of product. Unlike in the original, `<r>` returns every n-th product.
    /// `<a>`, which fails in the original's text environment, is treated as an ordinary search.
    ///
    /// # Errors
    /// Fails if the ranker fails or a product cannot be read.
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
