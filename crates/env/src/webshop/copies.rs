//! Removes goals that occur in several splits.
//!
//! A product that lists an option value twice yields equal goals. The official 1,000 products yield
//! nine pairs of equal goals, two of which have one goal in test and one in training.

use std::collections::BTreeSet;

use turnwise_core::EnvError;

use super::catalogue::Catalogue;
use super::goal::{GoalKind, Goals};
use super::product::Product;

/// Keeps equal goals only in the last split in which one of them occurs, so that `test` stays
/// unchanged.
pub(super) fn take_out(
    goals: &Goals,
    catalogue: &Catalogue,
    splits: &mut [Vec<u32>],
) -> Result<(), EnvError> {
    for later in (1..splits.len()).rev() {
        let (earlier, of_later) = splits.split_at_mut(later);
        let mut copies = BTreeSet::new();
        for &place in &of_later[0] {
            let product = catalogue.product(goals.product(place as usize)?)?;
            if !repeats_itself(&product, goals.kind()) {
                continue;
            }
            let own = goals.get(catalogue, place as usize)?.digest(catalogue)?;
            for &other in goals.of_same_product(place as usize)? {
                if other != place && goals.get(catalogue, other as usize)?.digest(catalogue)? == own {
                    copies.insert(other);
                }
            }
        }
        if !copies.is_empty() {
            for split in earlier {
                split.retain(|place| !copies.contains(place));
            }
        }
    }
    Ok(())
}

fn repeats_itself(product: &Product, kind: GoalKind) -> bool {
    fn repeats<'a>(mut texts: impl Iterator<Item = &'a str>) -> bool {
        let mut seen = BTreeSet::new();
        texts.any(|text| !seen.insert(text))
    }
    match kind {
        GoalKind::Synthetic => {
            product.options.iter().any(|option| repeats(option.values.iter().map(String::as_str)))
        }
        GoalKind::Human => {
            repeats(product.human_instructions.iter().map(|human| human.text.trim_matches('.')))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::product::ProductOption;
    use super::*;
    use crate::python::PythonRandom;

    #[test]
    fn a_goal_whose_copy_is_a_test_is_no_training_goal() {
        let product = |asin: &str, values: &[&str]| Product {
            asin: asin.into(),
            title: "a mat".into(),
            pricing: vec![12.0],
            instruction: Some("i am looking for a mat".into()),
            options: vec![ProductOption {
                name: "size".into(),
                values: values.iter().map(|&value| value.to_owned()).collect(),
            }],
            ..Product::default()
        };
        let products = vec![
            product("B000000001", &["12 inch", "9 inch", "12 inch"]),
            product("B000000002", &["x", "y"]),
        ];
        let mut random = PythonRandom::new(42);
        let catalogue = Catalogue::from_products(products, &mut random).unwrap();
        let goals = Goals::make(&catalogue, GoalKind::Synthetic, &mut random, 42, None).unwrap();
        let place = |id: &str| goals.position(&catalogue, id).unwrap() as u32;
        let [first, nine, copy] = [0, 1, 2].map(|number| place(&format!("synthetic/B000000001/{number}")));
        let others = [0, 1].map(|number| place(&format!("synthetic/B000000002/{number}")));
        let mut splits = vec![vec![copy, nine, others[0]], vec![others[1]], vec![first]];
        take_out(&goals, &catalogue, &mut splits).unwrap();
        assert_eq!(splits, [vec![nine, others[0]], vec![others[1]], vec![first]]);
        let mut splits = vec![vec![nine], vec![first, copy]];
        take_out(&goals, &catalogue, &mut splits).unwrap();
        assert_eq!(splits, [vec![nine], vec![first, copy]]);
    }
}
