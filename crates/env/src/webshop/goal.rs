//! Goals of the agent, made of a catalogue as the original makes them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Purpose, Seed};

use super::catalogue::Catalogue;
use super::product::Product;
use crate::python::PythonRandom;

/// The chosen options that a goal asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoalOptions {
    /// Option and value, sorted by option: synthetic goals.
    Named(Vec<(String, String)>),
    /// Values alone: human goals.
    Values(Vec<String>),
}

impl GoalOptions {
    /// Returns the number of options.
    pub fn len(&self) -> usize {
        match self {
            Self::Named(options) => options.len(),
            Self::Values(options) => options.len(),
        }
    }

    /// Returns true if no option is asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// `synthetic/ASIN/NUMBER` or `human/ASIN/NUMBER`: the product it was made of, and which of its goals.
    pub id: String,
    /// Index of that product in the catalogue.
    pub product: u32,
    /// Instruction that the agent reads.
    pub instruction: String,
    /// The attributes asked for.
    pub attributes: Vec<String>,
    /// The options asked for.
    pub options: GoalOptions,
    /// The price to stay at or below, in dollars; one million where the instruction names none.
    pub price_upper: f64,
}

impl Goal {
    /// Returns the digest of the goal's content: its product with the data for judging the type,
    /// the instruction, and all requirements.
    ///
    /// # Errors
    /// Fails if the catalogue does not have the goal's product, or its record in the file is broken.
    pub fn digest(&self, catalogue: &Catalogue) -> Result<String, EnvError> {
        let product = catalogue.product(self.product)?;
        let mut parts: Vec<&str> = vec![
            &product.asin,
            &product.title,
            &product.category,
            &product.product_category,
            &self.instruction,
        ];
        let (attributes, price) = (self.attributes.len().to_string(), self.price_upper.to_string());
        parts.extend([product.query.as_str(), &price, &attributes]);
        parts.extend(self.attributes.iter().map(String::as_str));
        match &self.options {
            GoalOptions::Named(options) => {
                parts.push("named");
                parts.extend(options.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
            }
            GoalOptions::Values(values) => {
                parts.push("values");
                parts.extend(values.iter().map(String::as_str));
            }
        }
        Ok(turnwise_core::digest(parts))
    }
}

/// Source of the goals' words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GoalKind {
    /// Written by a rule from the files' instructions: one for every combination of option values.
    #[default]
    Synthetic,
    /// Written by people.
    Human,
}

/// The price of a goal that names none.
const NO_LIMIT: f64 = 1_000_000.0;

/// All goals of a catalogue in order, 20 bytes each. A goal is assembled on demand.
#[derive(Clone, Debug)]
pub struct Goals {
    kind: GoalKind,
    specs: Vec<Spec>,
    /// Their indices, ordered by product and number.
    order: Vec<u32>,
    /// Products without goals because their options have too many combinations.
    skipped: usize,
}

/// Combinations of option values that one product may have if all of them become goals.
const MOST_COMBINATIONS: u32 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Spec {
    product: u32,
    /// Number of the combination of option values, or of the product's human instruction.
    number: u32,
    /// In tens of dollars; 0: none.
    tens: u16,
}

impl Spec {
    fn key(&self) -> (u32, u32) {
        (self.product, self.number)
    }
}

impl Goals {
    /// Makes the goals of a catalogue: in the products' order, then shuffled.
    ///
    /// `random` continues after the draws of the prices. Each product with an instruction draws two
    /// of the next four multiples of 10 dollars above its price, and takes the higher, if two are
    /// below 1,000. `shuffle` is the seed of the shuffle. This equals the original to the bit: with
    /// 42 for all three, verl-agent's 6,910 goals of the 1,000-product files have its order.
    ///
    /// `most` limits the option combinations of a product that become goals, drawn by the project's
    /// generator; absent: all, as in the original. A product with more than a million then gives no
    /// goals and is counted ([`Goals::skipped`]), as is one with more than 4,294,967,295 for any
    /// `most`.
    ///
    /// # Errors
    /// Fails if a product's record in the catalogue's file is broken.
    pub fn make(
        catalogue: &Catalogue,
        kind: GoalKind,
        random: &mut PythonRandom,
        shuffle: u64,
        most: Option<usize>,
    ) -> Result<Self, EnvError> {
        let (mut specs, mut skipped) = (Vec::new(), 0);
        for index in 0..catalogue.len() as u32 {
            let product = catalogue.product(index)?;
            match kind {
                GoalKind::Synthetic => {
                    if product.instruction.is_none() {
                        continue;
                    }
                    let tens = price_limit(catalogue.price(index), random);
                    let mut sizes = product.options.iter().map(|option| option.values.len() as u64);
                    let combinations =
                        sizes.try_fold(1u64, u64::checked_mul).and_then(|all| u32::try_from(all).ok());
                    let Some(count) =
                        combinations.filter(|count| most.is_some() || *count <= MOST_COMBINATIONS)
                    else {
                        skipped += 1;
                        continue;
                    };
                    let numbers = some_of(count, most, shuffle, index);
                    specs.extend(numbers.into_iter().map(|number| Spec { product: index, number, tens }));
                }
                GoalKind::Human => {
                    for (number, instruction) in (0..).zip(&product.human_instructions) {
                        if !instruction.attributes.is_empty() {
                            let tens = price_limit(catalogue.price(index), random);
                            specs.push(Spec { product: index, number, tens });
                        }
                    }
                }
            }
        }
        PythonRandom::new(shuffle).shuffle(&mut specs);
        let mut order: Vec<u32> = (0..specs.len() as u32).collect();
        order.sort_unstable_by_key(|index| specs[*index as usize].key());
        Ok(Self { kind, specs, order, skipped })
    }

    /// Returns the goals of which the parts were kept.
    pub(super) fn from_parts(kind: GoalKind, specs: &[[u32; 3]], order: Vec<u32>, skipped: usize) -> Self {
        let spec = |[product, number, tens]: &[u32; 3]| Spec {
            product: *product,
            number: *number,
            tens: *tens as u16,
        };
        Self { kind, specs: specs.iter().map(spec).collect(), order, skipped }
    }

    /// Returns the parts of the goals for a file: product, number and price limit in tens, and the
    /// indices ordered by product and number.
    pub(super) fn parts(&self) -> (impl Iterator<Item = [u32; 3]> + '_, &[u32]) {
        (self.specs.iter().map(|spec| [spec.product, spec.number, u32::from(spec.tens)]), &self.order)
    }

    /// Products that give no goals because their options have too many combinations.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns the number of goals.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Returns true if there is no goal.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Returns the goal at this index of the shuffled order.
    ///
    /// # Errors
    /// Fails if there is no goal at this index, if the catalogue lacks its product or instruction,
    /// or if the product's record is broken.
    pub fn get(&self, catalogue: &Catalogue, index: usize) -> Result<Goal, EnvError> {
        let spec = self.spec(index)?;
        self.build(catalogue, *spec)
    }

    /// Returns the index of the goal with this id.
    pub fn position(&self, catalogue: &Catalogue, id: &str) -> Option<usize> {
        let (asin, number) = self.parse_id(id)?;
        let wanted = (catalogue.find(asin)?, number);
        let found = self.order.binary_search_by_key(&wanted, |index| self.specs[*index as usize].key());
        found.ok().map(|at| self.order[at] as usize)
    }

    fn spec(&self, index: usize) -> Result<&Spec, EnvError> {
        self.specs.get(index).ok_or_else(|| EnvError::Other(format!("there is no goal number {index}")))
    }

    /// Returns the source of their words.
    pub(super) fn kind(&self) -> GoalKind {
        self.kind
    }

    /// Returns the product of the goal at this index, by its index in the catalogue.
    pub(super) fn product(&self, index: usize) -> Result<u32, EnvError> {
        Ok(self.spec(index)?.product)
    }

    /// Returns the indices of all goals of its product, itself among them.
    pub(super) fn of_same_product(&self, index: usize) -> Result<&[u32], EnvError> {
        let product = self.product(index)?;
        let of = |index: &u32| self.specs[*index as usize].product;
        let start = self.order.partition_point(|index| of(index) < product);
        let end = self.order.partition_point(|index| of(index) <= product);
        Ok(&self.order[start..end])
    }

    fn prefix(&self) -> &'static str {
        match self.kind {
            GoalKind::Synthetic => "synthetic",
            GoalKind::Human => "human",
        }
    }

    fn parse_id<'a>(&self, id: &'a str) -> Option<(&'a str, u32)> {
        let (asin, number) = id.strip_prefix(self.prefix())?.strip_prefix('/')?.rsplit_once('/')?;
        Some((asin, number.parse().ok()?))
    }

    /// Returns the id of the goal at this index.
    pub(super) fn id(&self, catalogue: &Catalogue, index: usize) -> Result<String, EnvError> {
        let spec = self.spec(index)?;
        Ok(format!("{}/{}/{}", self.prefix(), catalogue.identifier(spec.product)?, spec.number))
    }

    /// Returns the first byte of the SHA-256 of the identifier of the goal's product.
    ///
    /// # Errors
    /// Fails if there is no goal at this index, or a catalogue in memory does not have its product.
    pub fn product_byte(&self, catalogue: &Catalogue, index: usize) -> Result<u8, EnvError> {
        let spec = self.spec(index)?;
        catalogue.identifier_byte(spec.product)
    }

    fn build(&self, catalogue: &Catalogue, spec: Spec) -> Result<Goal, EnvError> {
        let product = catalogue.product(spec.product)?;
        let broken = || EnvError::Other(format!("{} has no goal number {}", product.asin, spec.number));
        let (mut instruction, attributes, options) = match self.kind {
            GoalKind::Synthetic => {
                let options = combination(&product, spec.number);
                let mut text = product.instruction.clone().ok_or_else(broken)?;
                for (number, (name, value)) in options.iter().enumerate() {
                    text.push_str(if number == 0 { " with " } else { ", and " });
                    text.push_str(name);
                    text.push_str(": ");
                    text.push_str(value);
                }
                (text, product.instruction_attributes.clone(), GoalOptions::Named(options))
            }
            GoalKind::Human => {
                let human = product.human_instructions.get(spec.number as usize).ok_or_else(broken)?;
                let options = GoalOptions::Values(human.options.clone());
                (human.text.trim_matches('.').to_owned(), human.attributes.clone(), options)
            }
        };
        let price_upper = if spec.tens == 0 {
            NO_LIMIT
        } else {
            instruction.push_str(&format!(", and price lower than {}.00 dollars", u32::from(spec.tens) * 10));
            f64::from(spec.tens) * 10.0
        };
        Ok(Goal {
            id: format!("{}/{}/{}", self.prefix(), product.asin, spec.number),
            product: spec.product,
            instruction,
            attributes,
            options,
            price_upper,
        })
    }
}

/// Returns all numbers below `count`, or `most` of them in ascending order.
fn some_of(count: u32, most: Option<usize>, seed: u64, product: u32) -> Vec<u32> {
    let Some(most) = most.filter(|most| *most < count as usize) else { return (0..count).collect() };
    let mut rng = Seed::derive(seed, Purpose::Tasks, &[u64::from(product)]).rng();
    let mut chosen = BTreeSet::new();
    while chosen.len() < most {
        chosen.insert(rng.below(count as usize) as u32);
    }
    chosen.into_iter().collect()
}

/// Returns the limit above a price, in tens of dollars; 0 if there is none.
fn price_limit(price: f64, random: &mut PythonRandom) -> u16 {
    let above: Vec<u16> = (1..100).filter(|tens| f64::from(*tens) * 10.0 > price).take(4).collect();
    if above.len() < 2 {
        return 0;
    }
    let [first, second] = random.sample_two(above.len());
    above[first.max(second)]
}

/// Returns one combination of option values, the options sorted by name, the last one changing fastest.
fn combination(product: &Product, number: u32) -> Vec<(String, String)> {
    let mut options: Vec<_> = product.options.iter().collect();
    options.sort_by(|a, b| a.name.cmp(&b.name));
    let mut rest = number as usize;
    let mut chosen: Vec<(String, String)> = options
        .iter()
        .rev()
        .map(|option| {
            let count = option.values.len().max(1);
            let value = option.values.get(rest % count).cloned().unwrap_or_default();
            rest /= count;
            (option.name.clone(), value)
        })
        .collect();
    chosen.reverse();
    chosen
}
