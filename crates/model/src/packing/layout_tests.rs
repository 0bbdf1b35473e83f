use super::*;
use crate::cpu::decoder::tests::sequence;

#[test]
fn the_row_before_a_token_predicts_it() {
    let (a, b) = (sequence(&[7, 8, 9, 10, 11], &[(1, 2), (3, 4)]), sequence(&[5, 6], &[(1, 2)]));
    let mut packing = Packing::default();
    packing.fill([&a, &b].into_iter());
    // The last two tokens of `a` and the last of `b` are never inputs.
    assert_eq!(packing.tokens, [7, 8, 9, 5]);
    assert_eq!(packing.offsets, [0, 3, 4]);
    let targets: Vec<(usize, u32)> = packing.targets.iter().map(|t| (t.row, t.token)).collect();
    assert_eq!(targets, [(0, 8), (2, 10), (3, 6)]);
    assert_eq!(packing.targets_of(&(1..2)), 2..3);
    assert_eq!((packing.sequences(), packing.longest(), packing.shared()), (2, 3, 0));
    assert_eq!(packing.outputs, [0, 2, 3]);
}

#[test]
fn a_token_after_the_same_tokens_has_one_row() {
    let all = [
        sequence(&[1, 2, 3, 4, 5, 9], &[(4, 6)]),
        // Branches in the middle, and again further on.
        sequence(&[1, 2, 3, 6, 7, 9], &[(3, 6)]),
        sequence(&[1, 2, 3, 6, 8, 9], &[(3, 6)]),
        // A prefix of another, its continuation, and a duplicate.
        sequence(&[1, 2, 3, 6, 7], &[(3, 5)]),
        sequence(&[1, 2, 3, 6, 7, 7, 7], &[(6, 7)]),
        sequence(&[1, 2, 3, 6, 7, 7, 7], &[(6, 7)]),
        sequence(&[2, 2, 3, 6], &[(3, 4)]),
        sequence(&[], &[]),
    ];
    let mut packing = Packing::default();
    packing.fill_tree(all.iter());
    assert_eq!(packing.tokens, [1, 2, 3, 4, 5, 6, 7, 8, 7, 2, 2, 3]);
    let paths: Vec<Vec<usize>> =
        (0..8).map(|index| packing.path(index).iter().cloned().flatten().collect()).collect();
    let none = Vec::new();
    let expected = [
        &none,
        &vec![0, 1, 2],
        &vec![0, 1, 2, 5],
        &vec![0, 1, 2, 5],
        &vec![0, 1, 2, 5, 6],
        &vec![0, 1, 2, 5, 6, 8],
        &none,
        &none,
    ];
    assert!(paths.iter().zip(expected).all(|(a, b)| a == b), "{paths:?}");
    assert_eq!(packing.shared(), 3 + 4 + 4 + 5 + 6);
    assert_eq!(packing.longest(), 6);
    // A sequence's rows give back its tokens.
    for (index, sequence) in all.iter().enumerate() {
        let rows: Vec<usize> = paths[index].iter().copied().chain(packing.own(index)).collect();
        let tokens: Vec<u32> = rows.iter().map(|&row| packing.tokens[row]).collect();
        assert_eq!(tokens, sequence.tokens[..input_length(sequence)]);
        let targets = packing.targets_of(&(index..index + 1));
        for (target, position) in packing.targets[targets].iter().zip(sequence.response_positions()) {
            assert_eq!((target.row, target.token), (rows[position - 1], sequence.tokens[position]));
        }
    }
    let mut seen = vec![0; packing.targets.len()];
    for (output, &row) in packing.outputs.iter().enumerate() {
        for &target in packing.targets_of_output(output) {
            assert_eq!((packing.targets[target].row, packing.targets[target].output), (row, output));
            seen[target] += 1;
        }
    }
    assert!(seen.iter().all(|&times| times == 1));
    let last_of_prompt = packing.targets.iter().filter(|target| target.row == 2).count();
    assert_eq!((last_of_prompt, packing.targets.len(), packing.outputs.len()), (3, 13, 8));
}

#[test]
fn rows_have_the_coordinates_of_their_sequence() {
    let all = [sequence(&[7, 8, 9], &[(1, 3)]), sequence(&[], &[]), sequence(&[7, 8, 5, 5], &[(1, 4)])];
    let mut packing = Packing::default();
    packing.fill(all.iter());
    packing.identities = vec![40, 41, 42];
    let of = |rows: Range<usize>| packing.coordinates(rows).collect::<Vec<_>>();
    assert_eq!(of(0..5), [[40, 0], [40, 1], [42, 0], [42, 1], [42, 2]]);
    assert_eq!(of(1..4), [[40, 1], [42, 0], [42, 1]]);
    assert_eq!(of(2..2), <[[u64; 2]; 0]>::default());
}
