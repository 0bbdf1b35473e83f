//! SALT on free text: similar observations and actions are merged.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{group, turn};
use turnwise_core::{Batch, Purpose, Seed};
use turnwise_credit::embedding::HashedNgrams;
use turnwise_credit::salt::{Salt, SaltConfig, SaltMatching};
use turnwise_credit::{CreditInputs, Embedder};

fn edges(batch: &Batch, matching: SaltMatching, embedder: &dyn Embedder) -> Vec<Vec<(usize, usize)>> {
    edges_by(batch, &SaltConfig { matching, ..SaltConfig::default() }, embedder)
}

fn edges_by(batch: &Batch, config: &SaltConfig, embedder: &dyn Embedder) -> Vec<Vec<(usize, usize)>> {
    let salt = Salt::new(SaltConfig { history: 1, ..config.clone() }).unwrap();
    let inputs = CreditInputs::new(batch).with_embedder(embedder);
    salt.edges(&inputs, &batch.groups[0]).unwrap()
}

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
    // No texts are equal, so the exact rule merges no edges.
    assert_eq!(edges(&batch, SaltMatching::Exact, &embedder).len(), 6);
    let alike = edges(&batch, SaltMatching::Embedding, &embedder);
    assert_eq!(alike, [vec![(0, 0), (1, 0)], vec![(0, 1), (1, 1)], vec![(0, 2), (1, 2)]]);
}

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
    assert_eq!(counted.1.load(Ordering::Relaxed), 4);
    assert_eq!(embedded, edges(&batch, SaltMatching::Exact, &counted));
}

const OBSERVATIONS: [&str; 3] = [
    "You are standing in the {room}, and in front of you is a {thing}.",
    "In front of you is a {thing}; you are standing in the {room}.",
    "You are still standing in the {room}. There in front of you is a {thing}.",
];
const ACTIONS: [[&str; 3]; 2] = [
    ["pick up the {thing}", "now pick up the {thing}", "please pick the {thing} up"],
    ["walk away from the {thing}", "walk away from the {thing} again", "now walk away from the {thing}"],
];

/// Meaning of a turn: the previous action and its room (8: none), the room, the action, the next
/// room.
type Meaning = [usize; 4];

fn told(rooms: [(&str, &str); 4]) -> (Batch, Vec<Vec<Meaning>>) {
    let mut rng = Seed::derive(5, Purpose::Credit, &[]).rng();
    let mut below = |count: usize| rng.below(count);
    let (mut walks, mut meanings) = (Vec::new(), Vec::new());
    for _ in 0..24 {
        let told = |words: &str, room: usize| {
            words.replace("{room}", rooms[room].0).replace("{thing}", rooms[room].1)
        };
        let visited: Vec<usize> = (0..7).map(|_| below(4)).collect();
        let mut meaning: Vec<Meaning> = Vec::new();
        let turns = visited.windows(2).map(|rooms| {
            let action = below(2);
            let before = meaning.last().map_or(8, |last| 2 * last[1] + last[2]);
            meaning.push([before, rooms[0], action, rooms[1]]);
            let mut turn = turn(&told(OBSERVATIONS[below(3)], rooms[0]), 0.0);
            turn.action = told(ACTIONS[action][below(3)], rooms[0]);
            turn
        });
        let turns: Vec<_> = turns.collect();
        walks.push(turns);
        // The last observation is not paraphrased, so its turn is not judged.
        meaning.pop();
        meanings.push(meaning);
    }
    (Batch { groups: vec![group(walks)] }, meanings)
}

fn precision_and_recall(rooms: [(&str, &str); 4], config: &SaltConfig) -> (f64, f64) {
    let (batch, meanings) = told(rooms);
    let judged = |place: &(usize, usize)| place.1 < meanings[place.0].len();
    let places: Vec<(usize, usize)> = (0..meanings.len())
        .flat_map(|walk| (0..meanings[walk].len()).map(move |turn| (walk, turn)))
        .collect();
    let same =
        |one: &(usize, usize), other: &(usize, usize)| meanings[one.0][one.1] == meanings[other.0][other.1];
    let pairs = |places: &[(usize, usize)], same_only: bool| {
        let mut count = 0.0;
        for (index, one) in places.iter().enumerate() {
            count += places[..index].iter().filter(|other| !same_only || same(one, other)).count() as f64;
        }
        count
    };
    let (mut merged, mut right) = (0.0, 0.0);
    for edge in edges_by(&batch, config, &HashedNgrams::default()) {
        let edge: Vec<(usize, usize)> = edge.into_iter().filter(judged).collect();
        merged += pairs(&edge, false);
        right += pairs(&edge, true);
    }
    (if merged == 0.0 { 1.0 } else { right / merged }, right / pairs(&places, true))
}

#[test]
fn paraphrases_of_observations_and_actions_are_merged_by_what_they_mean() {
    let rooms = [
        ("kitchen", "copper kettle"),
        ("cellar", "dusty lantern"),
        ("library", "leather armchair"),
        ("garden", "stone fountain"),
    ];
    let by = |matching, actions| SaltConfig { matching, actions, ..SaltConfig::default() };
    let (exact, embedded) = (SaltMatching::Exact, SaltMatching::Embedding);
    // Exact texts hardly match; with embedded observations, exact actions keep turns apart.
    let (precision, recall) = precision_and_recall(rooms, &by(exact, exact));
    assert!(precision == 1.0 && recall < 0.1, "{precision} {recall}");
    let (precision, recall) = precision_and_recall(rooms, &by(embedded, exact));
    assert!(precision == 1.0 && recall < 0.5, "{precision} {recall}");
    assert_eq!(precision_and_recall(rooms, &by(embedded, embedded)), (1.0, 1.0));
}

#[test]
fn things_that_differ_by_a_number_need_a_higher_threshold() {
    // `shelf 1` and `shelf 2` differ little in spelling, so a threshold of 0.8 merges their turns.
    let rooms = [("hall", "shelf 1"), ("hall", "shelf 2"), ("hall", "shelf 3"), ("hall", "shelf 4")];
    let at = |threshold| {
        let (matching, actions) = (SaltMatching::Embedding, SaltMatching::Embedding);
        precision_and_recall(rooms, &SaltConfig { matching, actions, threshold, ..SaltConfig::default() })
    };
    let (precision, recall) = at(0.8);
    // Pairs of one meaning can even be split between clusters of another number.
    assert!(precision < 0.05 && recall < 1.0, "{precision} {recall}");
    let (precision, recall) = at(0.995);
    assert!(precision == 1.0 && recall < 0.5, "{precision} {recall}");
}

#[test]
fn actions_are_matched_by_embedding_where_observations_are() {
    let config = SaltConfig { actions: SaltMatching::Embedding, ..SaltConfig::default() };
    let error = Salt::new(config).unwrap_err().to_string();
    assert!(error.contains("goes with matching"), "{error}");
}
