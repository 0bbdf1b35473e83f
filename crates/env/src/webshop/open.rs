//! Shops from official folders: small ones in memory, the full one in files built once.

use std::path::{Path, PathBuf};

use turnwise_core::EnvError;

use super::catalogue::Catalogue;
use super::generator::{self, GeneratorConfig};
use super::official::{self, Size};
use super::product::Product;
use super::python::PythonRandom;
use super::search::{BuildOptions, IndexBuilder, SearchError, SearchIndex, document_text};
use super::set::{WebshopOptions, WebshopSet};
use super::store::StoreWriter;

/// The folder inside an official one that the files of the full shop are built in, if no other is named.
const BUILT: &str = "turnwise-shop";
const CATALOGUE: &str = "catalogue.bin";
const SEARCH: &str = "search";
const UNFINISHED: &str = "search.unfinished";

fn failed(error: &SearchError) -> EnvError {
    EnvError::Other(error.to_string())
}

impl WebshopSet {
    /// The shop of an official folder (see [`official`] for its files).
    ///
    /// The 1,000 products and their search live in memory. All 1.18 million are put into `built` (or
    /// `turnwise-shop` inside the folder) at the first time: a file of products and a search index, both read in
    /// place from then on. Delete that folder to build anew, for example after the official files have changed.
    pub fn open(folder: &Path, built: Option<&Path>, options: &WebshopOptions) -> Result<Self, EnvError> {
        match options.size.unwrap_or_else(|| official::size_of(folder)) {
            Size::Small => {
                let mut products = Vec::new();
                official::read(folder, Size::Small, None, |product| {
                    products.push(product);
                    Ok(())
                })?;
                Self::with_search(products, options)
            }
            Size::Full => {
                let default = folder.join(BUILT);
                let built = built.unwrap_or(&default);
                if !built.join(CATALOGUE).exists() || !built.join(SEARCH).exists() {
                    build(folder, built)?;
                }
                Self::from_built(built, options)
            }
        }
    }

    /// A shop of generated products, in memory: nothing to download.
    pub fn generated(config: GeneratorConfig, options: &WebshopOptions) -> Result<Self, EnvError> {
        Self::with_search(generator::products(config).collect(), options)
    }

    /// A shop of products in memory, with its search.
    pub fn with_search(products: Vec<Product>, options: &WebshopOptions) -> Result<Self, EnvError> {
        let documents = products.iter().map(|product| (product.asin.clone(), document_text(product)));
        let index = SearchIndex::build_in_memory(documents).map_err(|error| failed(&error))?;
        Self::from_products(products, Box::new(index), options)
    }

    fn from_built(built: &Path, options: &WebshopOptions) -> Result<Self, EnvError> {
        let mut random = PythonRandom::new(options.seed);
        let catalogue = Catalogue::open(&built.join(CATALOGUE), &mut random)?;
        let index = SearchIndex::open(&built.join(SEARCH)).map_err(|error| failed(&error))?;
        if index.len() != catalogue.len() {
            return Err(EnvError::File {
                path: built.display().to_string(),
                reason: format!(
                    "the search knows {} products and the catalogue has {}; delete this folder, it is built anew",
                    index.len(),
                    catalogue.len()
                ),
            });
        }
        Self::new(catalogue, Box::new(index), &mut random, options)
    }
}

/// Reads the full catalogue once and writes both files; each gets its name when it is whole.
fn build(folder: &Path, built: &Path) -> Result<(), EnvError> {
    let io = |path: &Path| {
        let path = format!(
            "{} (the files of the full shop are built here; another folder can be named)",
            path.display()
        );
        move |source| EnvError::Io { path, source }
    };
    std::fs::create_dir_all(built).map_err(io(built))?;
    let unfinished: PathBuf = built.join(UNFINISHED);
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).map_err(io(&unfinished))?;
    }
    let done = built.join(SEARCH);
    if done.exists() {
        std::fs::remove_dir_all(&done).map_err(io(&done))?;
    }
    let catalogue = built.join(CATALOGUE);
    let mut store = StoreWriter::new(&catalogue)?;
    let mut index =
        IndexBuilder::create(&unfinished, BuildOptions::default()).map_err(|error| failed(&error))?;
    official::read(folder, Size::Full, None, |product| {
        index.add(&product.asin, &document_text(&product)).map_err(|error| failed(&error))?;
        store.add(&product)
    })?;
    drop(index.finish().map_err(|error| failed(&error))?);
    std::fs::rename(&unfinished, &done).map_err(io(&done))?;
    store.finish()?;
    Ok(())
}
