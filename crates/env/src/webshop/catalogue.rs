//! Products of a shop, in memory or in a memory-mapped file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use turnwise_core::EnvError;

use super::nouns::NounFile;
use super::product::Product;
use super::store::Store;
use crate::python::PythonRandom;

/// Products of a shop with their prices.
#[derive(Debug)]
pub struct Catalogue {
    products: Products,
    prices: Vec<f64>,
}

#[derive(Debug)]
enum Products {
    Memory { products: Vec<Arc<Product>>, by_asin: HashMap<String, u32> },
    Mapped { store: Store, nouns: Option<NounFile> },
}

const UNKNOWN_PRICE: f64 = 100.0;

/// Returns a price per product. As in the original, a product with a price range gets a price drawn
/// uniformly from it.
fn draw<'a>(pricing: impl Iterator<Item = (f64, Option<f64>)> + 'a, random: &mut PythonRandom) -> Vec<f64> {
    pricing
        .map(|(low, high)| match high {
            None => low,
            Some(high) => random.uniform(low, high),
        })
        .collect()
}

pub(super) fn ends(product: &Product) -> (f64, Option<f64>) {
    match product.pricing.as_slice() {
        [] => (UNKNOWN_PRICE, None),
        [price] => (*price, None),
        [low, high, ..] => (*low, Some(*high)),
    }
}

impl Catalogue {
    /// Creates an in-memory catalogue. `random` draws the prices of products with a price range, in
    /// product order.
    ///
    /// # Errors
    /// Fails for a repeated ASIN.
    pub fn from_products(products: Vec<Product>, random: &mut PythonRandom) -> Result<Self, EnvError> {
        let mut by_asin = HashMap::with_capacity(products.len());
        for (index, product) in products.iter().enumerate() {
            if by_asin.insert(product.asin.clone(), index as u32).is_some() {
                return Err(EnvError::Other(format!("the product `{}` occurs twice", product.asin)));
            }
        }
        let prices = draw(products.iter().map(ends), random);
        let products = products.into_iter().map(Arc::new).collect();
        Ok(Self { products: Products::Memory { products, by_asin }, prices })
    }

    /// Opens a file written by [`StoreWriter`](super::store::StoreWriter). Only the prices are kept
    /// in memory.
    ///
    /// # Errors
    /// Fails if the file is unreadable, incomplete or damaged.
    pub fn open(path: &Path, random: &mut PythonRandom) -> Result<Self, EnvError> {
        let store = Store::open(path)?;
        let prices = draw((0..store.len()).map(|index| store.ends(index)), random);
        Ok(Self { products: Products::Mapped { store, nouns: None }, prices })
    }

    pub(super) fn add_nouns(&mut self, path: &Path, folder: &Path) -> Result<bool, EnvError> {
        let found = NounFile::open_or_make(path, folder, self)?;
        let any = found.is_some();
        if let Products::Mapped { nouns, .. } = &mut self.products {
            *nouns = found;
        }
        Ok(any)
    }

    /// Returns the number of products.
    pub fn len(&self) -> usize {
        self.prices.len()
    }

    /// Returns true if the catalogue is empty.
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty()
    }

    /// Returns a product by index.
    ///
    /// # Errors
    /// Fails if the index is out of range or the record is corrupt.
    pub fn product(&self, index: u32) -> Result<Arc<Product>, EnvError> {
        let missing = || EnvError::Other(format!("the catalogue has no product number {index}"));
        match &self.products {
            Products::Memory { products, .. } => {
                products.get(index as usize).map(Arc::clone).ok_or_else(missing)
            }
            Products::Mapped { store, nouns } => {
                let mut product = store.product(index as usize)?;
                product.nouns = nouns.as_ref().and_then(|nouns| nouns.of(index as usize));
                Ok(Arc::new(product))
            }
        }
    }

    /// Returns the price used for scoring, or 100 for a product without a price.
    pub fn price(&self, index: u32) -> f64 {
        self.prices.get(index as usize).copied().unwrap_or(UNKNOWN_PRICE)
    }

    /// Returns the index of the product with this ASIN.
    pub fn find(&self, asin: &str) -> Option<u32> {
        match &self.products {
            Products::Memory { by_asin, .. } => by_asin.get(asin).copied(),
            Products::Mapped { store, .. } => store.find(asin).map(|index| index as u32),
        }
    }

    pub(super) fn identifier(&self, index: u32) -> Result<String, EnvError> {
        match &self.products {
            Products::Mapped { store, .. } if (index as usize) < store.len() => {
                Ok(String::from_utf8_lossy(store.asin(index as usize)).into_owned())
            }
            Products::Memory { .. } | Products::Mapped { .. } => Ok(self.product(index)?.asin.clone()),
        }
    }

    pub(super) fn identifier_byte(&self, index: u32) -> Result<u8, EnvError> {
        let first = |asin: &[u8]| Sha256::digest(asin)[0];
        match &self.products {
            Products::Memory { .. } => Ok(first(self.product(index)?.asin.as_bytes())),
            Products::Mapped { store, .. } => Ok(first(store.asin(index as usize))),
        }
    }

    /// Returns the indices of the products for which `wanted` returns true.
    ///
    /// # Errors
    /// Fails if a record is corrupt.
    pub fn filter(&self, mut wanted: impl FnMut(&Product) -> bool) -> Result<Vec<u32>, EnvError> {
        let mut found = Vec::new();
        for index in 0..self.len() as u32 {
            if wanted(&*self.product(index)?) {
                found.push(index);
            }
        }
        Ok(found)
    }
}
