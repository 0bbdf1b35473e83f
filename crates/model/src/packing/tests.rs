use turnwise_core::TokenSequence;

use super::*;
use crate::backend::Network;
use crate::cpu::decoder::Workspace;
use crate::cpu::decoder::tests::{config, llama, parameters, qwen3, sequence};
use crate::ops::bf16::{Kernel, kernels};
use crate::testing::random;
use crate::weights::lora::{Adapter, Dropout, LoraConfig};
use crate::{ModelConfig, Parameters, Real};

/// Returns sequences that share prefixes in every possible way.
pub(crate) fn family() -> Vec<TokenSequence> {
    let head: Vec<u32> = (0..5).map(|at| at * 3 % 23).collect();
    let prompt = |start: u32, len: u32| (0..len).map(move |at| (at * 7 + start) % 23);
    let of = |parts: &[&[u32]]| parts.concat();
    let (first, second): (Vec<u32>, Vec<u32>) = (prompt(1, 70).collect(), prompt(2, 9).collect());
    vec![
        // One prompt with several responses, two of which share a start.
        sequence(&of(&[&head, &first, &[4, 5, 6, 7, 8]]), &[(75, 80)]),
        sequence(&of(&[&head, &first, &[4, 5, 9]]), &[(75, 78)]),
        sequence(&of(&[&head, &first, &[10]]), &[(75, 76)]),
        // Another prompt after the same start, and prompts that are prefixes of each other.
        sequence(&of(&[&head, &second, &[1, 2]]), &[(14, 16)]),
        sequence(&of(&[&head, &second]), &[(12, 14)]),
        sequence(&of(&[&head, &second, &[1, 2, 3, 3, 4]]), &[(14, 16), (18, 19)]),
        // An unrelated sequence, a duplicate, and one without a response.
        sequence(&[22, 21, 20], &[(1, 3)]),
        sequence(&of(&[&head, &first, &[4, 5, 9]]), &[(75, 78)]),
        sequence(&of(&[&head, &first]), &[]),
        // A first turn inside an earlier sequence's prompt.
        sequence(&of(&[&head, &first[..30], &[3, 3]]), &[(5, 9), (35, 37)]),
    ]
}

fn run<T: Real>(
    network: Network<'_, T>,
    recompute: bool,
    bf16: Option<Kernel>,
    packing: &Packing,
    wanted: &[bool],
) -> (Vec<[f64; 2]>, Vec<f64>) {
    let config = &network.parameters.config;
    let mut workspace = Workspace::<T>::new(config, recompute).with_bf16(bf16);
    let rows = workspace.forward(network, packing, 0.8);
    let statistics = rows.iter().map(|row| [row.logprob.to_f64(), row.entropy.to_f64()]).collect();
    let mut numbers = random(77, 2 * packing.targets.len()).into_iter().map(T::from_f64);
    let mut derivatives: Vec<[T; 2]> = Vec::new();
    for (sequence, &wanted) in wanted.iter().enumerate() {
        for _ in packing.targets_of(&(sequence..sequence + 1)) {
            let pair = [(); 2].map(|()| numbers.next().unwrap());
            derivatives.push(if wanted { pair } else { [T::ZERO; 2] });
        }
    }
    let mut gradient = vec![T::ZERO; network.trained()];
    workspace.begin_backward(network, packing);
    workspace.backward_outputs(network, packing, wanted, &derivatives, &mut gradient);
    workspace.backward_layers(network, packing, wanted, &mut gradient);
    (statistics, gradient.into_iter().map(Real::to_f64).collect())
}

fn packings(sequences: &[TokenSequence]) -> [Packing; 2] {
    let [mut tree, mut flat] = [Packing::default(), Packing::default()];
    tree.fill_tree(sequences.iter());
    flat.fill(sequences.iter());
    [tree, flat]
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let scale = b.iter().fold(1e-30f64, |most, x| most.max(x.abs()));
    a.iter().zip(b).fold(0.0f64, |most, (a, b)| most.max((a - b).abs())) / scale
}

fn largest(a: &[[f64; 2]], b: &[[f64; 2]]) -> f64 {
    assert_eq!(a.len(), b.len());
    let both = a.iter().flatten().zip(b.iter().flatten());
    both.fold(0.0f64, |most, (a, b)| most.max((a - b).abs()))
}

/// Returns choices of the sequences that have derivatives: all, one, some whose ancestors have
/// none, and none.
fn choices() -> Vec<Vec<bool>> {
    let of = |wanted: &[usize]| (0..10).map(|index| wanted.contains(&index)).collect();
    vec![vec![true; 10], of(&[1]), of(&[2, 5, 7]), of(&[0, 3, 6, 9]), of(&[4, 8]), of(&[])]
}

fn models() -> Vec<ModelConfig> {
    vec![config(4, 2, true), config(3, 1, false), qwen3(6, false), qwen3(2, true), llama()]
}

#[test]
fn a_tree_gives_the_numbers_of_its_sequences_one_by_one() {
    let [tree, flat] = packings(&family());
    assert_eq!(tree.shared() + tree.tokens.len(), flat.tokens.len());
    assert!(tree.tokens.len() * 3 < flat.tokens.len() && tree.outputs.len() < tree.targets.len());
    for config in models() {
        let parameters = parameters(&config, 5);
        let network = Network::from(&parameters);
        for recompute in [false, true] {
            for wanted in choices() {
                let (rows, gradient) = run(network, recompute, None, &tree, &wanted);
                let (exact_rows, exact) = run(network, recompute, None, &flat, &wanted);
                assert!(largest(&rows, &exact_rows) < 1e-11, "{}", largest(&rows, &exact_rows));
                assert!(distance(&gradient, &exact) < 1e-11, "{}", distance(&gradient, &exact));
                assert_eq!(exact.iter().any(|&g| g != 0.0), wanted.contains(&true));
            }
        }
    }
}

#[test]
fn a_tree_without_its_paths_or_one_of_its_sequences_is_noticed() {
    let parameters = parameters(&config(4, 2, true), 5);
    let network = Network::from(&parameters);
    let [tree, flat] = packings(&family());
    let (rows, exact) = run(network, false, None, &flat, &[true; 10]);
    let mut cut = tree.clone();
    cut.paths.clear();
    cut.path_offsets.fill(0);
    let (wrong_rows, wrong) = run(network, false, None, &cut, &[true; 10]);
    assert!(largest(&wrong_rows, &rows) > 1e-2 && distance(&wrong, &exact) > 1e-2);
    for sequence in [1, 2, 5, 7] {
        let mut wanted = [true; 10];
        wanted[sequence] = false;
        let (_, without) = run(network, false, None, &tree, &wanted);
        assert!(distance(&without, &exact) > 1e-3, "{sequence}");
    }
    let mut moved = tree;
    let part = moved.path_offsets[5];
    moved.paths[part] = moved.paths[part].start + 1..moved.paths[part].end + 1;
    let (wrong_rows, _) = run(network, false, None, &moved, &[true; 10]);
    assert!(largest(&wrong_rows, &rows) > 1e-3);
}

#[test]
fn single_precision_and_bf16_agree_with_the_flat_batch_to_rounding() {
    let [tree, flat] = packings(&family());
    let all = [true; 10];
    for config in [
        config(4, 2, true),
        qwen3(6, false),
        ModelConfig { hidden_size: 64, intermediate_size: 96, head_dim: 16, ..config(4, 2, true) },
    ] {
        let exact = parameters(&config, 5);
        let parameters: Parameters<f32> = exact.cast();
        let (exact_rows, exact) = run(Network::from(&exact), false, None, &flat, &all);
        let network = Network::from(&parameters);
        for (kernel, rows_bound, bound) in std::iter::once((None, 2e-5, 2e-5))
            .chain(kernels().into_iter().map(|kernel| (Some(kernel), 0.3, 0.1)))
        {
            let (tree_rows, of_tree) = run(network, false, kernel, &tree, &all);
            let (flat_rows, of_flat) = run(network, false, kernel, &flat, &all);
            let off = [largest(&tree_rows, &exact_rows), largest(&flat_rows, &exact_rows)];
            assert!(off[0] < rows_bound && off[0] < 2.0 * off[1] + 1e-5, "{kernel:?}: {off:?}");
            let off = [distance(&of_tree, &exact), distance(&of_flat, &exact)];
            assert!(off[0] < bound && off[0] < 2.0 * off[1] + 1e-5, "{kernel:?}: {off:?}");
            assert!(distance(&of_tree, &of_flat) < bound);
            let recomputed = run(network, true, kernel, &tree, &all);
            assert!(distance(&recomputed.1, &of_tree) < 1e-6);
            assert_eq!(run(network, false, kernel, &tree, &all).1, of_tree, "the same bits again");
        }
    }
}

#[test]
fn an_adapter_on_a_tree_has_the_gradient_of_the_flat_batch() {
    let [tree, flat] = packings(&family());
    for config in [config(4, 2, true), qwen3(6, true), llama()] {
        let parameters = parameters(&config, 5);
        let targets = vec!["all-linear".to_owned()];
        let lora = LoraConfig { rank: 3, alpha: 2.0, dropout: 0.0, rslora: false, targets };
        let mut adapter = Adapter::<f64>::zeros(&config, &lora).unwrap();
        adapter.data = random(6, adapter.data.len()).into_iter().map(|value| 0.3 * value).collect();
        let network = Network { adapter: Some(&adapter), ..Network::from(&parameters) };
        for (recompute, wanted) in [(false, 0), (true, 0), (false, 2), (true, 3)] {
            let wanted = &choices()[wanted];
            let (rows, gradient) = run(network, recompute, None, &tree, wanted);
            let (exact_rows, exact) = run(network, recompute, None, &flat, wanted);
            assert!(largest(&rows, &exact_rows) < 1e-11);
            assert!(distance(&gradient, &exact) < 1e-11);
        }
        // Dropout differs between sequences, which a shared row cannot represent.
        let network = Network { dropout: Dropout::new(9, 0.3), ..network };
        let dropped = run(network, false, None, &tree, &[true; 10]);
        assert!(largest(&dropped.0, &run(network, false, None, &flat, &[true; 10]).0) > 1e-3);
    }
}

#[test]
fn a_critic_on_a_tree_has_the_values_of_the_flat_batch() {
    let [tree, flat] = packings(&family());
    let mut critic = parameters(&config(4, 2, false), 3).to_critic();
    let value = critic.layout.value.clone().unwrap();
    let head = random(4, value.len());
    critic.data[value].copy_from_slice(&head);
    for wanted in choices() {
        let (rows, gradient) = run(Network::from(&critic), false, None, &tree, &wanted);
        let (exact_rows, exact) = run(Network::from(&critic), false, None, &flat, &wanted);
        assert!(largest(&rows, &exact_rows) < 1e-11 && distance(&gradient, &exact) < 1e-11);
    }
}
