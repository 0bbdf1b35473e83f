//! SALT on free text: observations that are alike are one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{group, turn};
use turnwise_core::Batch;
use turnwise_credit::embedding::HashedNgrams;
use turnwise_credit::salt::{Salt, SaltConfig, SaltMatching};
use turnwise_credit::{Embedder, Inputs};

fn edges(batch: &Batch, matching: SaltMatching, embedder: &dyn Embedder) -> Vec<Vec<(usize, usize)>> {
    let salt = Salt::new(SaltConfig { history: 1, matching, ..SaltConfig::default() }).unwrap();
    let inputs = Inputs::new(batch).with_embedder(embedder);
    salt.edges(&inputs, &batch.groups[0]).unwrap()
}

/// Two trajectories over the same three pages; the second has counters that differ.
fn shop() -> Batch {
    let pages = |count: u32| {
        vec![
            turn(&format!("Results 1 to 10 of {count} for red running shoes. Next, back to search"), 0.0),
            turn("Red running shoes by Aquila, price 42, sizes 38 to 46, colours red and blue", 0.0),
            turn(&format!("Thank you for your order number {count}, it will arrive soon"), 1.0),
        ]
    };
    Batch { groups: vec![group(vec![pages(48), pages(50)])] }
}

#[test]
fn alike_observations_share_an_edge() {
    let batch = shop();
    let embedder = HashedNgrams::default();
    // The texts differ, so that only the edge between equal pages could be shared, and it ends in
    // unequal ones.
    assert_eq!(edges(&batch, SaltMatching::Exact, &embedder).len(), 6);
    let alike = edges(&batch, SaltMatching::Embedding, &embedder);
    assert_eq!(alike, [vec![(0, 0), (1, 0)], vec![(0, 1), (1, 1)], vec![(0, 2), (1, 2)]]);
}

/// Counts how often it is asked.
struct Counted(HashedNgrams, AtomicUsize);

impl Embedder for Counted {
    fn embed(&self, text: &str) -> Vec<f32> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.embed(text)
    }
}

#[test]
fn each_text_of_a_group_is_embedded_once() {
    let texts = ["a hall", "a kitchen", "a hall", "a cellar"];
    let walk: Vec<_> = (0..40).map(|index| turn(texts[index % 4], 0.0)).collect();
    let batch = Batch { groups: vec![group(vec![walk; 5])] };
    let counted = Counted(HashedNgrams::default(), AtomicUsize::new(0));
    let embedded = edges(&batch, SaltMatching::Embedding, &counted);
    // Three pages and the empty text after the last turn.
    assert_eq!(counted.1.load(Ordering::Relaxed), 4);
    // Texts that are not alike: the same edges as by equality.
    assert_eq!(embedded, edges(&batch, SaltMatching::Exact, &counted));
}
