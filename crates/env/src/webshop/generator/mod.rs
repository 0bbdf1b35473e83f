//! Generated products.
//!
//! Product `i` depends only on the seed and `i` and belongs to category `i % 12`. Of a product's
//! four to seven attributes, the bullet points list all, the title one or two, and the description
//! about half. One product in ten has no options, and one in ten has a price range. Each product
//! has an instruction in the original's form and a free-form instruction, which may name option
//! values.
//!
//! The official catalogue has other words, longer descriptions and some products without an
//! instruction. Only 42 % of the official products have options.

mod text;
mod vocabulary;

use turnwise_core::{Purpose, Rng, Seed};

use self::vocabulary::{BRANDS, CATEGORIES, Category, Kind, OptionList, SERIES};
use super::product::{HumanInstruction, Product, ProductOption};

/// Default number of products.
pub(crate) const DEFAULT_PRODUCTS: u32 = 12_000;

const STREAM: u64 = 0x7765_6273_686f_7001;

const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Generator settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorConfig {
    /// Random seed.
    pub seed: u64,
    /// Number of products.
    pub products: u32,
}

impl Default for GeneratorConfig {
    fn default() -> Self {
        Self { seed: 0, products: DEFAULT_PRODUCTS }
    }
}

/// Iterates over the generated products.
pub fn products(config: GeneratorConfig) -> impl ExactSizeIterator<Item = Product> + Clone {
    (0..config.products).map(move |index| product(config.seed, index))
}

/// Generates one product.
pub fn product(seed: u64, index: u32) -> Product {
    let mut rng = Seed::derive(seed, Purpose::World, &[STREAM, u64::from(index)]).rng();
    let category = CATEGORIES[index as usize % CATEGORIES.len()];
    let kind = &category.kinds[rng.below(category.kinds.len())];
    let chosen = some_of(&mut rng, category.attributes, 4, 7);
    let attributes: Vec<String> = chosen.iter().map(|(name, _)| (*name).to_owned()).collect();

    let brand = format!("{}{}", one(&mut rng, &BRANDS.0), one(&mut rng, &BRANDS.1));
    let series = format!("{} {}", one(&mut rng, &SERIES), 10 + rng.below(90));
    let options = options(&mut rng, kind);
    let pricing = pricing(&mut rng, kind);
    let title = text::title(&mut rng, &brand, &series, kind.noun, &attributes);
    let description = text::description(&mut rng, &brand, kind.noun, &attributes);
    let bullet_points = text::bullet_points(&mut rng, &chosen, kind.noun);

    let count = 1 + rng.below(3);
    let instruction_attributes: Vec<String> = attributes_for(&mut rng, &attributes, count);
    let instruction = text::instruction(kind.query, &instruction_attributes);
    let human = human_instruction(&mut rng, kind.query, &attributes, &options);
    Product {
        asin: asin(seed, index),
        title,
        category: category.name.to_owned(),
        query: kind.query.to_owned(),
        product_category: path(category, kind),
        description,
        bullet_points,
        pricing,
        options,
        attributes,
        instruction_attributes,
        instruction: Some(instruction),
        human_instructions: vec![human],
        nouns: None,
    }
}

fn path(category: &Category, kind: &Kind) -> String {
    format!("{} › {}", category.root, kind.path)
}

/// Returns an ASIN: `T` and nine base-36 digits. ASINs are unique because the indices are permuted.
fn asin(seed: u64, index: u32) -> String {
    const COUNT: u128 = 36_u128.pow(9);
    // Coprime to 36, and so large that neighbours differ in all digits.
    const STEP: u128 = 61_803_398_874_989;
    let start = u128::from(Seed::derive(seed, Purpose::World, &[STREAM]).rng().bits());
    let mut number = (start + u128::from(index) * STEP) % COUNT;
    let mut name = [b'T'; 10];
    for digit in name[1..].iter_mut().rev() {
        *digit = DIGITS[(number % 36) as usize];
        number /= 36;
    }
    name.map(char::from).iter().collect()
}

fn one<'a>(rng: &mut Rng, items: &[&'a str]) -> &'a str {
    items[rng.below(items.len())]
}

fn some_of<T: Clone>(rng: &mut Rng, items: &[T], low: usize, high: usize) -> Vec<T> {
    let mut items = items.to_vec();
    rng.shuffle(&mut items);
    items.truncate(low + rng.below(high - low + 1));
    items
}

fn options(rng: &mut Rng, kind: &Kind) -> Vec<ProductOption> {
    if rng.chance(0.1) {
        return Vec::new();
    }
    kind.options.iter().filter_map(|list| option(rng, list)).collect()
}

fn option(rng: &mut Rng, list: &OptionList) -> Option<ProductOption> {
    if rng.chance(0.12) {
        return None;
    }
    let all = list.values.len();
    let count = 2 + rng.below(all.min(7) - 1);
    let values: Vec<&str> = if list.ordered {
        let start = rng.below(all - count + 1);
        list.values[start..start + count].to_vec()
    } else {
        some_of(rng, list.values, count, count)
    };
    let values = values.into_iter().map(str::to_owned).collect();
    Some(ProductOption { name: list.name.to_owned(), values })
}

fn pricing(rng: &mut Rng, kind: &Kind) -> Vec<f64> {
    let (low, high) = kind.prices;
    let mut price = || {
        let dollars = (low * (high / low).powf(rng.uniform())).floor() as i64;
        let cents = [99, 49, 0][rng.below(3)];
        (dollars * 100 + cents) as f64 / 100.0
    };
    let first = price();
    let second = price();
    if first != second && rng.chance(0.1) { vec![first.min(second), first.max(second)] } else { vec![first] }
}

fn attributes_for(rng: &mut Rng, attributes: &[String], count: usize) -> Vec<String> {
    let mut indices: Vec<usize> = (0..attributes.len()).collect();
    rng.shuffle(&mut indices);
    indices.truncate(count);
    indices.sort_unstable();
    indices.into_iter().map(|index| attributes[index].clone()).collect()
}

fn human_instruction(
    rng: &mut Rng,
    query: &str,
    attributes: &[String],
    options: &[ProductOption],
) -> HumanInstruction {
    let count = 1 + rng.below(2);
    let attributes = attributes_for(rng, attributes, count);
    let mut asked = Vec::new();
    for option in options {
        if rng.chance(0.8) {
            asked.push((option.name.as_str(), option.values[rng.below(option.values.len())].as_str()));
        }
    }
    HumanInstruction {
        text: text::human(rng, query, &attributes, &asked),
        attributes,
        options: asked.into_iter().map(|(_, value)| value.to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests;
