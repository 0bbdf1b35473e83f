use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use turnwise_core::EnvError;

use super::catalogue::Catalogue;
use super::generator::{self, GeneratorConfig};
use super::goal_file::{self, Source};
use super::nouns;
use super::official::{self, CatalogueReport, Size};
use super::product::Product;
use super::search::{BuildOptions, IndexBuilder, SearchError, SearchIndex, document_text};
use super::set::{WebshopOptions, WebshopSet};
use super::store::StoreWriter;
use super::task_index::{Kept, Stamp};
use crate::python::PythonRandom;

const BUILT: &str = "turnwise-shop";
const CATALOGUE: &str = "catalogue.bin";
const SEARCH: &str = "search";
const NOUNS: &str = "nouns.bin";
const NOTES: &str = "left-out.txt";
const LOCK: &str = "build.lock";

fn failed(error: &SearchError) -> EnvError {
    EnvError::Other(error.to_string())
}

fn without_nouns() -> String {
    format!(
        "the folder has no `{}`: the type factor of products other than the goal's is judged by content words, which \
         stand in for the nouns that spaCy finds (metric `type_stand_in`); tools/webshop_nouns.py makes the file",
        nouns::NOUNS
    )
}

impl WebshopSet {
    /// Opens a shop with the official files in a folder ([`official`]).
    ///
    /// The small catalogue (1,000 products) is kept in memory. The full catalogue is converted on
    /// first use, and the result is stored in `built` (default: `turnwise-shop` in the official
    /// folder). Delete the folder `built` if the official files change.
    ///
    /// # Errors
    /// Fails if an official file is missing, a file is broken, `built` is not writable, or no
    /// product yields a goal.
    pub fn open(folder: &Path, built: Option<&Path>, options: &WebshopOptions) -> Result<Self, EnvError> {
        match options.size.unwrap_or_else(|| official::size_of(folder)) {
            Size::Small => {
                let mut products = Vec::new();
                let mut nouns = nouns::read(folder)?;
                let read = official::read(folder, Size::Small, None, |mut product| {
                    product.nouns = nouns.as_mut().and_then(|nouns| nouns.get(&product.title).cloned());
                    products.push(product);
                    Ok(())
                })?;
                let note = nouns.is_none().then(without_nouns);
                Ok(Self::with_search(products, options)?.with_note(read.warning()).with_note(note))
            }
            Size::Full => {
                let default = folder.join(BUILT);
                let built = built.unwrap_or(&default);
                if !is_built(built) {
                    build(built, |each| official::read(folder, Size::Full, None, each))?;
                }
                Self::from_built(built, folder, options)
            }
        }
    }

    /// Creates an in-memory shop with generated products.
    ///
    /// # Errors
    /// Fails if no product yields a goal.
    pub fn generated(config: GeneratorConfig, options: &WebshopOptions) -> Result<Self, EnvError> {
        Self::with_search(generator::products(config).collect(), options)
    }

    /// Opens a shop with generated products. The shop's files are built once, in a subfolder of
    /// `built`.
    ///
    /// # Errors
    /// Fails if a built file is broken, `built` is not writable, or no product yields a goal.
    pub fn generated_in(
        built: &Path,
        config: GeneratorConfig,
        options: &WebshopOptions,
    ) -> Result<Self, EnvError> {
        let inside = &built.join(folder_of(config)?);
        if !is_built(inside) {
            build(inside, |each| {
                generator::products(config).try_for_each(each)?;
                Ok(CatalogueReport { products: config.products as usize, ..CatalogueReport::default() })
            })?;
        }
        Self::from_built(inside, built, options)
    }

    /// Creates an in-memory shop with search.
    ///
    /// # Errors
    /// Fails for a repeated ASIN, or if no product yields a goal.
    pub(crate) fn with_search(products: Vec<Product>, options: &WebshopOptions) -> Result<Self, EnvError> {
        let documents = products.iter().map(|product| (product.asin.clone(), document_text(product)));
        let index = SearchIndex::build_in_memory(documents).map_err(|error| failed(&error))?;
        Self::from_products(products, Box::new(index), options)
    }

    fn from_built(built: &Path, folder: &Path, options: &WebshopOptions) -> Result<Self, EnvError> {
        let mut random = PythonRandom::new(options.seed);
        let path = built.join(CATALOGUE);
        let mut catalogue = Catalogue::open(&path, &mut random)?;
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
        let nouns = catalogue.add_nouns(&built.join(NOUNS), folder)?;
        let source = Source::new(index.fingerprint(), options);
        let divided = if let Some(divided) = goal_file::load(built, &source) {
            divided
        } else {
            let divided = Self::divide(&catalogue, &mut random, options)?;
            // Without the cache, the next start only takes longer.
            let _ = goal_file::save(built, &source, &divided.0, &divided.1);
            divided
        };
        let left_out = std::fs::read_to_string(built.join(NOTES)).ok().filter(|note| !note.is_empty());
        let set = Self::with_goals(catalogue, Box::new(index), options, divided)?;
        let kept = Stamp::of(&path).map(|catalogue| Kept { folder: built.to_owned(), source, catalogue });
        Ok(set.with_kept(kept).with_note(left_out).with_note((!nouns).then(without_nouns)))
    }
}

/// Number of generated products whose hash becomes part of the folder name.
const SAMPLED: u32 = 64;

fn folder_of(config: GeneratorConfig) -> Result<String, EnvError> {
    let sample = GeneratorConfig { products: config.products.min(SAMPLED), ..config };
    let sample: Vec<Product> = generator::products(sample).collect();
    let bytes = postcard::to_stdvec(&sample).map_err(|error| EnvError::Other(error.to_string()))?;
    let digest = Sha256::digest(bytes).first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk));
    Ok(format!("generated-{}-{digest:016x}", config.products))
}

fn is_built(built: &Path) -> bool {
    built.join(CATALOGUE).exists() && built.join(SEARCH).exists()
}

fn build(
    built: &Path,
    read: impl FnOnce(&mut dyn FnMut(Product) -> Result<(), EnvError>) -> Result<CatalogueReport, EnvError>,
) -> Result<(), EnvError> {
    let io = |path: &Path| {
        let path = format!(
            "{} (the files of the full shop are built here; another folder can be named)",
            path.display()
        );
        move |source| EnvError::Io { path, source }
    };
    std::fs::create_dir_all(built).map_err(io(built))?;
    let path = built.join(LOCK);
    let lock = File::create(&path).map_err(io(&path))?;
    // Without file locks, the first process to finish wins and the others use its files.
    let _ = lock.lock();
    if is_built(built) {
        return Ok(());
    }
    let aside = tempfile::Builder::new().prefix(".building-").tempdir_in(built).map_err(io(built))?;
    let (products, search) = (aside.path().join(CATALOGUE), aside.path().join(SEARCH));
    let mut store = StoreWriter::new(&products)?;
    let mut index = IndexBuilder::create(&search, BuildOptions::default()).map_err(|error| failed(&error))?;
    let report = read(&mut |product| {
        index.add(&product.asin, &document_text(&product)).map_err(|error| failed(&error))?;
        store.add(&product)
    })?;
    drop(index.finish().map_err(|error| failed(&error))?);
    store.finish()?;
    let note = aside.path().join(NOTES);
    let mut file = File::create(&note).map_err(io(&note))?;
    file.write_all(report.warning().unwrap_or_default().as_bytes()).map_err(io(&note))?;
    let done = built.join(SEARCH);
    let stale = done.exists() && !is_built(built);
    if stale {
        // Left by a build that stopped between renames.
        std::fs::remove_dir_all(&done).map_err(io(&done))?;
    }
    for (from, name) in [(&note, NOTES), (&search, SEARCH), (&products, CATALOGUE)] {
        let to = built.join(name);
        if let Err(error) = std::fs::rename(from, &to) {
            if is_built(built) {
                return Ok(());
            }
            return Err(io(&to)(error));
        }
    }
    Ok(())
}
