//! A catalogue with its search engine.

use turnwise_core::EnvError;

use super::catalogue::Catalogue;

/// Maximum number of search results.
pub(crate) const SEARCH_LIMIT: usize = 50;

/// Search engine over a catalogue.
pub trait Ranker: Send + Sync + std::fmt::Debug {
    /// Returns the ASINs of at most `limit` products, best first.
    ///
    /// # Errors
    /// Fails if the search fails.
    fn rank(&self, query: &str, limit: usize) -> Result<Vec<String>, EnvError>;
}

/// Catalogue with a search engine.
#[derive(Debug)]
pub struct Shop {
    catalogue: Catalogue,
    ranker: Box<dyn Ranker>,
    shows_attributes: bool,
}

impl Shop {
    /// Creates a shop. `shows_attributes` adds a button to product pages (the original's
    /// `show_attrs`, off by default).
    pub fn new(catalogue: Catalogue, ranker: Box<dyn Ranker>, shows_attributes: bool) -> Self {
        Self { catalogue, ranker, shows_attributes }
    }

    /// Returns the products.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Returns true if product pages have a button for attributes.
    pub(crate) fn shows_attributes(&self) -> bool {
        self.shows_attributes
    }

    /// Returns the catalogue indices of the products found, best first.
    ///
    /// As in the original, a query that starts with `<c>` lists the products of a category, and one
    /// with `<q>` those of a product type. `<r>` lists products at regular intervals, whereas the
    /// original picks random products. `<a>`, which fails in the original's text environment, is
    /// treated as an ordinary search.
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
