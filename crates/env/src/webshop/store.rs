//! Memory-mapped files for catalogues that do not fit in memory.
//!
//! ```text
//! magic (8)  record, record, ...  pad to 8
//! entry of 48 bytes a product: offset u64, length u32, low f64, high f64 (NaN: none), asin (10), 0 (10)
//! place u32 a product, ordered by asin
//! start of the entries u64, number of products u64, magic (8)
//! ```
//!
//! Numbers are little-endian, and records are [`Product`]s in postcard format.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use memmap2::Mmap;
use turnwise_core::EnvError;

use super::catalogue::ends;
use super::product::Product;

const HEAD: &[u8; 8] = b"TWSHOP1\n";
const TAIL: &[u8; 8] = b"\nTWSHOPE";
const ENTRY: usize = 48;
pub(super) const ASIN: usize = 10;

/// An open catalogue file.
#[derive(Debug)]
pub struct Store {
    path: String,
    map: Mmap,
    entries: usize,
    count: usize,
}

/// Writes a catalogue file, using about 64 bytes of memory per product.
pub struct StoreWriter<'a> {
    path: &'a Path,
    file: BufWriter<tempfile::NamedTempFile>,
    offset: u64,
    entries: Vec<u8>,
    asins: Vec<([u8; ASIN], u32)>,
}

impl<'a> StoreWriter<'a> {
    /// Starts a file, which appears at `path` only when [`StoreWriter::finish`] is called.
    ///
    /// # Errors
    /// Fails if the parent folder is missing or not writable.
    pub fn new(path: &'a Path) -> Result<Self, EnvError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = turnwise_files::temporary(folder, ".catalogue-")
            .map_err(|source| EnvError::io(folder, source))?;
        let mut file = BufWriter::new(file);
        file.write_all(HEAD).map_err(|source| EnvError::io(path, source))?;
        Ok(Self { path, file, offset: HEAD.len() as u64, entries: Vec::new(), asins: Vec::new() })
    }

    /// Adds a product.
    ///
    /// # Errors
    /// Fails if the ASIN is empty or longer than 10 bytes, or writing fails.
    pub fn add(&mut self, product: &Product) -> Result<(), EnvError> {
        let fail = |reason: String| EnvError::Other(format!("product `{}`: {reason}", product.asin));
        let asin = product.asin.as_bytes();
        if asin.is_empty() || asin.len() > ASIN {
            return Err(fail(format!("an identifier has 1 to {ASIN} bytes")));
        }
        let record = postcard::to_stdvec(product).map_err(|error| fail(error.to_string()))?;
        self.file.write_all(&record).map_err(|source| EnvError::io(self.path, source))?;
        let mut padded = [0; ASIN];
        padded[..asin.len()].copy_from_slice(asin);
        let (low, high) = ends(product);
        self.entries.extend(self.offset.to_le_bytes());
        self.entries.extend((record.len() as u32).to_le_bytes());
        self.entries.extend(low.to_le_bytes());
        self.entries.extend(high.unwrap_or(f64::NAN).to_le_bytes());
        self.entries.extend(padded);
        self.entries.resize(self.entries.len().next_multiple_of(ENTRY), 0);
        self.asins.push((padded, self.asins.len() as u32));
        self.offset += record.len() as u64;
        Ok(())
    }

    /// Completes the file and returns the number of products.
    ///
    /// # Errors
    /// Fails for a repeated ASIN, or if the file cannot be written.
    pub fn finish(mut self) -> Result<usize, EnvError> {
        self.asins.sort_unstable();
        if let Some(pair) = self.asins.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let padded = String::from_utf8_lossy(&pair[0].0);
            let asin = padded.trim_end_matches('\0');
            return Err(EnvError::Other(format!("the product `{asin}` occurs twice")));
        }
        let start = self.offset.next_multiple_of(8);
        let mut tail = vec![0; (start - self.offset) as usize];
        tail.append(&mut self.entries);
        tail.extend(self.asins.iter().flat_map(|(_, index)| index.to_le_bytes()));
        tail.extend(start.to_le_bytes());
        tail.extend((self.asins.len() as u64).to_le_bytes());
        tail.extend(TAIL);
        self.file.write_all(&tail).map_err(|source| EnvError::io(self.path, source))?;
        let file = self.file.into_inner().map_err(|error| EnvError::io(self.path, error.into_error()))?;
        file.as_file().sync_all().map_err(|source| EnvError::io(self.path, source))?;
        file.persist(self.path).map_err(|error| EnvError::io(self.path, error.error))?;
        Ok(self.asins.len())
    }
}

impl Store {
    /// Opens a file.
    ///
    /// # Errors
    /// Fails if the file is unreadable, incomplete or damaged.
    pub fn open(path: &Path) -> Result<Self, EnvError> {
        let refuse = |reason: &str| EnvError::File {
            path: path.display().to_string(),
            reason: format!("{reason}; delete it and build it again from the official files"),
        };
        let file = File::open(path).map_err(|source| EnvError::io(path, source))?;
        // SAFETY: the map is read-only, all values read from it are checked, and the file is only
        // replaced by renaming, which leaves mapped contents unchanged. Truncating it would end the
        // process.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }.map_err(|source| EnvError::io(path, source))?;
        let footer = map.len().checked_sub(24).filter(|_| map.starts_with(HEAD) && map.ends_with(TAIL));
        let Some(footer) = footer else { return Err(refuse("not a whole catalogue file")) };
        let (entries, count) = (number(&map, footer) as usize, number(&map, footer + 8) as usize);
        let table = count.checked_mul(ENTRY + 4).and_then(|bytes| bytes.checked_add(entries));
        if table != Some(footer) {
            return Err(refuse("the table of this catalogue file has another length than it says"));
        }
        Ok(Self { path: path.display().to_string(), map, entries, count })
    }

    /// Returns the number of products.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if the file has no products.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn entry(&self, index: usize) -> &[u8] {
        &self.map[self.entries + index * ENTRY..][..ENTRY]
    }

    /// Returns a product's price, or both ends of its price range.
    pub fn ends(&self, index: usize) -> (f64, Option<f64>) {
        let entry = self.entry(index);
        let read = |at: usize| f64::from_bits(number(entry, at));
        (read(12), Some(read(20)).filter(|high| !high.is_nan()))
    }

    /// Returns the ASIN of the product at an index, which must exist.
    pub fn asin(&self, index: usize) -> &[u8] {
        let padded = &self.entry(index)[28..28 + ASIN];
        let end = padded.iter().position(|byte| *byte == 0).unwrap_or(ASIN);
        &padded[..end]
    }

    /// Reads a product.
    ///
    /// # Errors
    /// Fails for an unknown index or corrupt record.
    pub fn product(&self, index: usize) -> Result<Product, EnvError> {
        let refuse = |reason: String| EnvError::File { path: self.path.clone(), reason };
        if index >= self.count {
            return Err(refuse(format!("there is no product number {index}")));
        }
        let entry = self.entry(index);
        let (offset, length) = (number(entry, 0) as usize, half(entry, 8) as usize);
        let record = offset.checked_add(length).and_then(|end| self.map.get(offset..end));
        let product = record.and_then(|record| postcard::from_bytes(record).ok());
        product.ok_or_else(|| {
            refuse(format!(
                "product number {index} is broken; delete the file and build it again from the official files"
            ))
        })
    }

    /// Returns the index of the product with this ASIN.
    pub fn find(&self, asin: &str) -> Option<usize> {
        let mut padded = [0; ASIN];
        padded.get_mut(..asin.len())?.copy_from_slice(asin.as_bytes());
        let indices = &self.map[self.entries + self.count * ENTRY..][..self.count * 4];
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            let index = half(indices, middle * 4) as usize;
            if index >= self.count {
                return None;
            }
            match self.entry(index)[28..28 + ASIN].cmp(&padded) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(index),
            }
        }
        None
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(asin: &str, pricing: &[f64]) -> Product {
        Product {
            asin: asin.to_owned(),
            title: format!("the {asin}"),
            pricing: pricing.to_vec(),
            ..Product::default()
        }
    }

    fn write(path: &Path, products: &[Product]) -> Result<usize, EnvError> {
        let mut writer = StoreWriter::new(path)?;
        products.iter().try_for_each(|product| writer.add(product))?;
        writer.finish()
    }

    #[test]
    fn products_come_back_and_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalogue.bin");
        let products = [product("B2", &[3.0, 5.5]), product("B10", &[]), product("A", &[9.99])];
        assert_eq!(write(&path, &products).unwrap(), 3);
        let store = Store::open(&path).unwrap();
        for (index, product) in products.iter().enumerate() {
            assert_eq!(&store.product(index).unwrap(), product);
            assert_eq!(store.find(&product.asin), Some(index));
            assert_eq!(store.ends(index), ends(product));
        }
        assert_eq!((store.find("B1"), store.find("longer than ten"), store.find("")), (None, None, None));
        assert!(store.product(3).is_err());
    }

    #[test]
    fn half_files_and_doubled_products_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalogue.bin");
        let error = write(&path, &[product("A", &[]), product("A", &[])]).unwrap_err().to_string();
        assert!(error.contains("the product `A` occurs twice"), "{error}");
        assert!(!path.exists());
        write(&path, &[product("A", &[]), product("B", &[])]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 8, 40, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(Store::open(&path).is_err(), "{length} bytes");
        }
        let mut wrong = whole.clone();
        let count = wrong.len() - 16;
        wrong[count] += 1;
        std::fs::write(&path, &wrong).unwrap();
        assert!(Store::open(&path).unwrap_err().to_string().contains("another length"));
        let mut wrong = whole;
        wrong[8..12].fill(0xff);
        std::fs::write(&path, &wrong).unwrap();
        assert!(Store::open(&path).unwrap().product(0).unwrap_err().to_string().contains("is broken"));
    }
}
