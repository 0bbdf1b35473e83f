//! Shopping goals, as in the original.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Purpose, Seed};

use super::catalogue::Catalogue;
use super::product::Product;
use crate::python::PythonRandom;

/// Options requested by a goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoalOptions {
    /// Names and values of a synthetic goal, sorted by name.
    Named(Vec<(String, String)>),
    /// Values of a human goal, without names.
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

    /// Returns true if no option is requested.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An instruction and its requirements.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// `synthetic/ASIN/NUMBER` or `human/ASIN/NUMBER`.
    pub id: String,
    /// Catalogue index of the goal's product.
    pub product: u32,
    /// Instruction for the agent.
    pub instruction: String,
    /// Requested attributes.
    pub attributes: Vec<String>,
    /// Requested options.
    pub options: GoalOptions,
    /// Price limit in dollars (inclusive), or one million for no limit.
    pub price_upper: f64,
}

impl Goal {
    /// Hashes the instruction, the requirements and the product data that the type factor depends
    /// on.
    ///
    /// # Errors
    /// Fails if the product is missing or corrupt.
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

/// How the instructions were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GoalKind {
    /// Generated instructions, one per combination of option values.
    #[default]
    Synthetic,
    /// Written by people.
    Human,
}

const NO_LIMIT: f64 = 1_000_000.0;

/// Goals of a catalogue. Each goal takes 16 bytes; the full [`Goal`] is created on demand.
#[derive(Clone, Debug)]
pub struct Goals {
    kind: GoalKind,
    specs: Vec<Spec>,
    order: Vec<u32>,
    skipped: usize,
}

const MOST_COMBINATIONS: u32 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Spec {
    product: u32,
    /// Index of the option combination or of the human instruction.
    number: u32,
    /// Price limit in tens of dollars, or 0 for no limit.
    tens: u16,
}

impl Spec {
    fn key(&self) -> (u32, u32) {
        (self.product, self.number)
    }
}

impl Goals {
    /// Creates the goals in product order and shuffles them with the seed `shuffle`.
    ///
    /// `random` must be the generator that drew the prices, because the price limits continue its
    /// sequence. A price limit is the higher of two draws from the four multiples of 10 dollars
    /// that follow the price and are below 1,000. With seed 42, the 1,000-product files yield the
    /// same 6,910 goals as verl-agent, in the same order.
    ///
    /// `most` is the maximum number of goals per product. `None` keeps all option combinations,
    /// like the original, but skips products with more than a million combinations
    /// ([`Goals::skipped`]). Products with more than 4,294,967,295 combinations are always skipped.
    ///
    /// # Errors
    /// Fails if a record is corrupt.
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

    pub(super) fn from_parts(kind: GoalKind, specs: &[[u32; 3]], order: Vec<u32>, skipped: usize) -> Self {
        let spec = |[product, number, tens]: &[u32; 3]| Spec {
            product: *product,
            number: *number,
            tens: *tens as u16,
        };
        Self { kind, specs: specs.iter().map(spec).collect(), order, skipped }
    }

    pub(super) fn parts(&self) -> (impl Iterator<Item = [u32; 3]> + '_, &[u32]) {
        (self.specs.iter().map(|spec| [spec.product, spec.number, u32::from(spec.tens)]), &self.order)
    }

    /// Returns the number of products that are skipped because they have too many option
    /// combinations.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns the number of goals.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Returns true if there are no goals.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Returns the goal at an index in the shuffled order.
    ///
    /// # Errors
    /// Fails for an unknown index or a corrupt product.
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

    pub(super) fn kind(&self) -> GoalKind {
        self.kind
    }

    pub(super) fn product(&self, index: usize) -> Result<u32, EnvError> {
        Ok(self.spec(index)?.product)
    }

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

    pub(super) fn id(&self, catalogue: &Catalogue, index: usize) -> Result<String, EnvError> {
        let spec = self.spec(index)?;
        Ok(format!("{}/{}/{}", self.prefix(), catalogue.identifier(spec.product)?, spec.number))
    }

    /// Returns the first byte of the SHA-256 of the ASIN of a goal's product.
    ///
    /// # Errors
    /// Fails for an unknown index or product.
    pub(crate) fn product_byte(&self, catalogue: &Catalogue, index: usize) -> Result<u8, EnvError> {
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

fn some_of(count: u32, most: Option<usize>, seed: u64, product: u32) -> Vec<u32> {
    let Some(most) = most.filter(|most| *most < count as usize) else { return (0..count).collect() };
    let mut rng = Seed::derive(seed, Purpose::Tasks, &[u64::from(product)]).rng();
    let mut chosen = BTreeSet::new();
    while chosen.len() < most {
        chosen.insert(rng.below(count as usize) as u32);
    }
    chosen.into_iter().collect()
}

fn price_limit(price: f64, random: &mut PythonRandom) -> u16 {
    let above: Vec<u16> = (1..100).filter(|tens| f64::from(*tens) * 10.0 > price).take(4).collect();
    if above.len() < 2 {
        return 0;
    }
    let [first, second] = random.sample_two(above.len());
    above[first.max(second)]
}

/// Returns the option combination with this number. For the numbering, options are sorted by name,
/// and the last option varies fastest.
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
