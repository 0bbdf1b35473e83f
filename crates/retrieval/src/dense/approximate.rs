//! Approximate vector search with a neighbor graph (HNSW): compares a query with only a few
//! thousand vectors.
//!
//! ```text
//! DIR/hnsw/graph.hnsw.graph, graph.hnsw.data   the graph, of positions of passages
//! DIR/hnsw/turnwise-hnsw.json                  of which vectors, with which settings, and the recall that was measured
//! ```
//!
//! Vectors stay memory-mapped and must be L2-normalized: the distance is 1 minus the inner product.
//! How a graph is built depends on random numbers and thread timing, but searches of a given graph
//! are deterministic.
//!
//! Source: Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using
//! Hierarchical Navigable Small World graphs" (2018), as implemented by the crate `hnsw_rs`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hnsw_rs::api::AnnT as _;
use hnsw_rs::prelude::{Distance, Hnsw, HnswIo};
use pulp::Arch;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;
use turnwise_files::catch_panic;

use super::VectorStore;
use super::graph_options::{GraphOptions, HNSW};
use crate::RetrievalError;
use crate::build::{BuildFolder, BuildProgress, DENSE, Watch};
use crate::bytes::Bytes;
use crate::manifest::Manifest;

const MANIFEST: &str = "turnwise-hnsw.json";
const FORMAT: u32 = 1;
const NAME: &str = "graph";
/// Index that represents the current query, which is not one of the stored vectors.
const ASKED: u32 = u32::MAX;
/// Maximum number of layers above the lowest layer.
const LAYERS: usize = 16;
/// Number of vectors inserted between two progress reports.
const TOGETHER: usize = 4096;
/// Number of stored vectors used as queries to measure the recall.
const PROBES: usize = 100;
/// Number of nearest neighbors per query over which the recall is measured.
const RECALL_AT: usize = 10;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    options: GraphOptions,
    passages: String,
    encoder: String,
    vectors: usize,
    recall: f64,
    /// SHA-256 of the two files that the library `hnsw_rs` wrote. Damage must be detected first,
    /// because loading some damaged files aborts the process. Empty in graphs from earlier
    /// versions.
    #[serde(default)]
    sha256: BTreeMap<String, String>,
}

thread_local! {
    /// This thread's current query, and buffers for two rows of the vectors.
    static QUERY: RefCell<[Vec<f32>; 3]> = const { RefCell::new([const { Vec::new() }; 3]) };
}

#[derive(Clone)]
struct Products {
    vectors: Arc<VectorStore>,
    arch: Arch,
}

impl Distance<u32> for Products {
    fn eval(&self, left: &[u32], right: &[u32]) -> f32 {
        let (Some(&left), Some(&right)) = (left.first(), right.first()) else { return 2.0 };
        let (left, right) = if right == ASKED { (right, left) } else { (left, right) };
        QUERY.with_borrow_mut(|[query, other, row]| {
            let product = if left == ASKED {
                self.vectors.product(self.arch, right, query, row)
            } else {
                self.vectors.read(self.arch, left as usize, left as usize + 1, other);
                self.vectors.product(self.arch, right, other, row)
            };
            (1.0 - product).max(0.0)
        })
    }
}

/// A neighbor graph over vectors.
pub struct Graph {
    graph: Hnsw<'static, u32, Products>,
    options: GraphOptions,
    recall: f64,
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Graph")
            .field("options", &self.options)
            .field("recall", &self.recall)
            .finish_non_exhaustive()
    }
}

fn hashes(folder: &Path) -> Result<BTreeMap<String, String>, RetrievalError> {
    let of = |suffix: &str| {
        let name = format!("{NAME}.hnsw.{suffix}");
        let path = folder.join(&name);
        let bytes = Bytes::map(&path).map_err(|error| RetrievalError::file(&path, &error))?;
        Ok((name, hexadecimal(&Sha256::digest(&*bytes))))
    };
    ["graph", "data"].into_iter().map(of).collect()
}

fn failed(folder: &Path, problem: &str) -> RetrievalError {
    RetrievalError::damaged(folder, problem)
}

impl Graph {
    /// Loads an index folder's graph, which takes about 300 bytes of memory per vector.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if the graph is missing or belongs to other vectors.
    pub fn open(folder: &Path, vectors: &Arc<VectorStore>) -> Result<Self, RetrievalError> {
        let place = folder.join(HNSW);
        let Description { options, passages, encoder, vectors: count, recall, sha256 } =
            Manifest::read(&place, MANIFEST, FORMAT, "graph of vectors")?.description;
        if passages != vectors.passages() || encoder != vectors.encoder() || count != vectors.len() {
            return Err(failed(&place, "it is of other vectors than are beside it"));
        }
        if !sha256.is_empty() && sha256 != hashes(&place)? {
            return Err(failed(&place, "its files have other bytes than were written"));
        }
        // The library's graph borrows its reader, so both are leaked.
        let reader: &'static HnswIo = Box::leak(Box::new(HnswIo::new(&place, NAME)));
        let products = Products { vectors: Arc::clone(vectors), arch: Arch::new() };
        // The library panics on invalid files.
        let graph = catch_panic(|| reader.load_hnsw_with_dist(products))
            .map_err(|panic| failed(&place, &format!("it does not contain a graph: {panic}")))?
            .map_err(|error| failed(&place, &error.to_string()))?;
        let mut graph: Hnsw<'static, u32, Products> = graph;
        graph.set_searching_mode(true);
        if graph.get_nb_point() != count {
            return Err(failed(&place, "it has another number of vectors than it says"));
        }
        Ok(Self { graph, options, recall })
    }

    /// Returns the recall measured after the build: the fraction of the ten nearest vectors that a
    /// search finds.
    pub fn recall(&self) -> f64 {
        self.recall
    }

    pub(super) fn search(&self, query: &[f32], limit: usize) -> Vec<(u32, f32)> {
        if limit == 0 {
            return Vec::new();
        }
        QUERY.with_borrow_mut(|[asked, ..]| {
            asked.clear();
            asked.extend_from_slice(query);
        });
        let found = self.graph.search(&[ASKED], limit, self.options.search.max(limit));
        let mut found: Vec<(u32, f32)> =
            found.iter().map(|near| (near.get_origin_id() as u32, 1.0 - near.get_distance())).collect();
        found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        found
    }
}

/// Builds a graph over a folder's vectors; the final progress includes the measured recall.
///
/// # Errors
///
/// Returns [`RetrievalError::Setting`] for options out of range, [`RetrievalError::File`] if
/// vectors are missing or a graph exists or cannot be written, [`RetrievalError::Encoder`] if
/// vectors are not L2-normalized, and [`RetrievalError::Interrupted`] if `watch` stopped the build.
pub fn build_graph(
    folder: &BuildFolder,
    options: GraphOptions,
    watch: Watch<'_>,
) -> Result<(BuildProgress, f64), RetrievalError> {
    folder.refuse_existing(HNSW)?;
    options.check()?;
    let vectors = Arc::new(VectorStore::open(&folder.finished(DENSE))?);
    let arch = Arch::new();
    let mut row = Vec::new();
    for position in 0..vectors.len() {
        vectors.read(arch, position, position + 1, &mut row);
        let length: f32 = row.iter().map(|value| value * value).sum();
        if (length - 1.0).abs() > 0.01 {
            return Err(RetrievalError::Encoder {
                reason: format!(
                    "vector {position} has length {}, and a graph needs length 1; use the exact search",
                    length.sqrt()
                ),
            });
        }
    }
    let products = Products { vectors: Arc::clone(&vectors), arch };
    let graph: Hnsw<'_, u32, Products> =
        Hnsw::new(options.neighbours, vectors.len().max(1), LAYERS, options.construction, products);
    let mut progress = BuildProgress { length: vectors.len() as u64, ..BuildProgress::default() };
    for start in (0..vectors.len()).step_by(TOGETHER) {
        if watch(progress).is_break() {
            return Err(RetrievalError::Interrupted);
        }
        let end = (start + TOGETHER).min(vectors.len());
        (start..end).into_par_iter().for_each(|position| graph.insert_slice((&[position as u32], position)));
        progress.passages = end as u64;
        progress.read = end as u64;
    }
    let place = folder.unfinished(HNSW);
    let made = Graph { graph, options, recall: 0.0 };
    let recall = recall(&made, &vectors);
    std::fs::create_dir_all(&place).map_err(|error| RetrievalError::file(&place, &error))?;
    made.graph
        .file_dump(&place, NAME)
        .map_err(|error| RetrievalError::File { path: place.clone(), reason: error.to_string() })?;
    let description = Description {
        options,
        passages: vectors.passages().to_owned(),
        encoder: vectors.encoder().to_owned(),
        vectors: vectors.len(),
        recall,
        sha256: hashes(&place)?,
    };
    Manifest::new(FORMAT, description).write(&place, MANIFEST)?;
    folder.publish(HNSW)?;
    Ok((progress, recall))
}

fn recall(graph: &Graph, vectors: &VectorStore) -> f64 {
    let (arch, mut query, mut found, mut all) = (Arch::new(), Vec::new(), 0, 0);
    for probe in 0..PROBES.min(vectors.len()) {
        let position = probe * vectors.len() / PROBES.min(vectors.len());
        vectors.read(arch, position, position + 1, &mut query);
        let near = graph.search(&query, RECALL_AT);
        let exact = vectors.search(&query, RECALL_AT).remove(0);
        // Vectors tied with the last exact one count.
        let least = exact.last().map_or(0.0, |(_, score)| score - 1e-5);
        found += near.iter().filter(|(_, score)| *score >= least).count().min(exact.len());
        all += exact.len();
    }
    if all == 0 { 1.0 } else { found as f64 / all as f64 }
}
