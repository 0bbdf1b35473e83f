//! Properties of every generated product.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::webshop::search::{SearchIndex, document_text};

fn pages(product: &Product) -> String {
    let lines = product.bullet_points.join(" ");
    format!("{} {} {lines}", product.title, product.description).to_lowercase()
}

#[test]
fn the_same_seed_gives_the_same_products_and_another_gives_others() {
    let made: Vec<Product> = products(GeneratorConfig { seed: 3, products: 500 }).collect();
    assert_eq!(made.len(), 500);
    for index in [499, 0, 250] {
        assert_eq!(product(3, index), made[index as usize]);
    }
    assert!(
        made.iter()
            .zip(products(GeneratorConfig { seed: 4, products: 500 }))
            .all(|(one, other)| { one.asin != other.asin && one.title != other.title })
    );
}

#[test]
fn the_default_catalogue_is_even_and_its_identifiers_are_unique() {
    let mut asins = BTreeSet::new();
    let mut categories_found: BTreeMap<String, usize> = BTreeMap::new();
    let mut queries: BTreeMap<String, usize> = BTreeMap::new();
    let (mut ranges, mut plain) = (0, 0);
    let mut texts = BTreeSet::new();
    for product in products(GeneratorConfig::default()) {
        assert!(product.asin.len() == 10 && asins.insert(product.asin));
        *categories_found.entry(product.category).or_default() += 1;
        *queries.entry(product.query).or_default() += 1;
        ranges += usize::from(product.pricing.len() == 2);
        plain += usize::from(product.options.is_empty());
        texts.insert((product.title, product.description, product.bullet_points));
    }
    assert_eq!(asins.len(), 12_000);
    assert_eq!(texts.len(), 12_000);
    assert_eq!(categories_found.into_values().collect::<Vec<_>>(), [1000; 12]);
    assert_eq!(queries.len(), 72);
    assert!(queries.values().all(|&count| count > 100), "{queries:?}");
    assert!((900..1500).contains(&ranges), "{ranges}");
    assert!((1000..2000).contains(&plain), "{plain}");
}

#[test]
fn instructions_are_worded_in_many_ways() {
    let mut starts = BTreeSet::new();
    for product in products(GeneratorConfig { seed: 0, products: 1200 }) {
        let human = &product.human_instructions[0];
        let mut text = human.text.replace(&product.query, "Q");
        for attribute in &human.attributes {
            text = text.replace(attribute, "A");
        }
        starts.insert(text.split(',').next().unwrap_or_default().replace("A and A", "A"));
    }
    assert!(starts.len() >= 16, "{starts:#?}");
}

#[test]
fn a_search_for_the_instruction_finds_most_products() {
    let config = GeneratorConfig { seed: 1, products: 2400 };
    let index = SearchIndex::build_in_memory(
        products(config).map(|product| (product.asin.clone(), document_text(&product))),
    )
    .unwrap();
    let mut found = 0;
    for product in products(config).step_by(8) {
        let query = product.instruction.unwrap_or_default();
        let hits = index.search(&query.to_lowercase(), 50).unwrap();
        found += usize::from(hits.iter().any(|hit| hit.name == product.asin));
    }
    assert!(found >= 290, "only {found} of 300 products are among the first 50");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_product_is_whole(seed: u64, index: u32) {
        let product = product(seed, index);
        let pages = pages(&product);
        prop_assert!((4..=7).contains(&product.attributes.len()));
        for attribute in &product.attributes {
            prop_assert!(pages.contains(attribute.as_str()), "{attribute}: {pages}");
        }
        prop_assert!((1..=3).contains(&product.instruction_attributes.len()));
        prop_assert!(product.instruction_attributes.iter().all(|asked| product.attributes.contains(asked)));
        let instruction = product.instruction.clone().unwrap_or_default();
        prop_assert!(instruction.contains(&product.query), "{instruction}");
        prop_assert!(product.instruction_attributes.iter().all(|asked| instruction.contains(asked.as_str())));

        let human = &product.human_instructions[0];
        prop_assert!(human.text.contains(&product.query) && !human.attributes.is_empty());
        let asked = human.attributes.iter().chain(&human.options);
        for asked in asked {
            prop_assert!(human.text.contains(asked.as_str()), "{asked}: {}", human.text);
        }
        let offered: BTreeSet<&String> = product.options.iter().flat_map(|option| &option.values).collect();
        prop_assert!(human.options.iter().all(|value| offered.contains(value)));

        prop_assert!(matches!(product.pricing.len(), 1 | 2));
        prop_assert!(product.pricing.iter().all(|&price| (1.0..1000.0).contains(&price)));
        prop_assert!(product.pricing.is_sorted());
        for option in &product.options {
            let values: BTreeSet<&String> = option.values.iter().collect();
            prop_assert!(values.len() == option.values.len() && values.len() >= 2, "{option:?}");
            prop_assert!(option.values.iter().all(|value| *value == value.to_lowercase()));
        }
        prop_assert!(product.product_category.matches(" › ").count() >= 1);
        prop_assert!(CATEGORIES.iter().any(|category| category.name == product.category));
    }
}
