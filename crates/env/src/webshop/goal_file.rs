//! Caches the goals of a large catalogue, because creating them takes minutes and gigabytes of
//! memory.
//!
//! A file starts with a JSON line that contains the source and the number of goals. Little-endian
//! u32 numbers follow the JSON line. First come the product, number and price limit (in tens of
//! dollars) of each goal, then the goals' indices sorted by product and number, then the goals'
//! indices of each split.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use turnwise_core::EnvError;

use super::goal::{GoalKind, Goals};
use super::set::{Splits, WebshopOptions};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    /// Version of the goals; increase it if the same options yield different goals than before.
    version: u32,
    products: String,
    goals: GoalKind,
    goals_per_product: Option<usize>,
    seed: u64,
    splits: Splits,
}

impl Source {
    pub(super) fn new(products: &str, options: &WebshopOptions) -> Self {
        let WebshopOptions { goals, goals_per_product, seed, splits, .. } = *options;
        Self { version: 2, products: products.to_owned(), goals, goals_per_product, seed, splits }
    }

    pub(super) fn file_name(&self, kind: &str) -> String {
        let name = serde_json::to_string(self).unwrap_or_default();
        let digest = Sha256::digest(name);
        let number = digest.first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk));
        format!("{kind}-{number:016x}.bin")
    }

    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(self.file_name("goals"))
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    source: Source,
    goals: usize,
    skipped: usize,
    splits: Vec<usize>,
}

pub(super) type Divided = (Goals, Vec<Vec<u32>>);

pub(super) fn load(folder: &Path, source: &Source) -> Option<Divided> {
    let bytes = std::fs::read(source.path(folder)).ok()?;
    let line = bytes.iter().position(|byte| *byte == b'\n')?;
    let header: Header = serde_json::from_slice(&bytes[..line]).ok()?;
    let numbers = &bytes[line + 1..];
    let count = header.goals * 4 + header.splits.iter().sum::<usize>();
    if header.source != *source || numbers.len() != count * 4 {
        return None;
    }
    let mut numbers =
        numbers.chunks_exact(4).map(|chunk| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
    let specs: Vec<[u32; 3]> =
        (0..header.goals).map_while(|_| Some([numbers.next()?, numbers.next()?, numbers.next()?])).collect();
    let order: Vec<u32> = numbers.by_ref().take(header.goals).collect();
    let splits: Vec<Vec<u32>> =
        header.splits.iter().map(|count| numbers.by_ref().take(*count).collect()).collect();
    let inside = |index: &u32| (*index as usize) < header.goals;
    let whole = order.iter().all(inside) && splits.iter().flatten().all(inside);
    whole.then(|| (Goals::from_parts(source.goals, &specs, order, header.skipped), splits))
}

pub(super) fn save(
    folder: &Path,
    source: &Source,
    goals: &Goals,
    splits: &[Vec<u32>],
) -> Result<(), EnvError> {
    let path = source.path(folder);
    let io = |source| EnvError::io(&path, source);
    let (specs, order) = goals.parts();
    let header = Header {
        source: source.clone(),
        goals: goals.len(),
        skipped: goals.skipped(),
        splits: splits.iter().map(Vec::len).collect(),
    };
    let mut bytes = serde_json::to_vec(&header).map_err(|error| EnvError::Other(error.to_string()))?;
    bytes.push(b'\n');
    bytes.extend(specs.flatten().flat_map(u32::to_le_bytes));
    bytes.extend(order.iter().chain(splits.iter().flatten()).flat_map(|index| index.to_le_bytes()));
    turnwise_files::write_shared(&path, |file| file.write_all(&bytes)).map_err(io)
}
