//! Reads the official files.
//!
//! | file | content |
//! |---|---|
//! | `items_shuffle.json`, `items_shuffle_1000.json` | products as crawled, one JSON list |
//! | `documents.jsonl`, `products_1000_documents.jsonl` | search documents, one per line |
//! | `items_ins_v2.json`, `items_ins_v2_1000.json` | attributes and generated instructions |
//! | `items_human_ins.json` | human instructions |
//!
//! Files may be zstd-compressed (`.zst`) and are streamed. Invalid products are skipped
//! ([`CatalogueReport::skipped`]), and truncated files are rejected.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{BufRead, Read};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue as RawJson;
use turnwise_core::EnvError;

use super::product::{HumanInstruction, Product, ProductOption};
use super::store::ASIN;
use crate::python::strip;

/// An official catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// The benchmark's usual 1,000 products.
    #[default]
    Small,
    /// All 1.18 million products.
    Full,
}

impl Size {
    fn products(self) -> [&'static str; 2] {
        match self {
            Self::Small => ["items_shuffle_1000.json", "products_1000_documents.jsonl"],
            Self::Full => ["items_shuffle.json", "documents.jsonl"],
        }
    }

    fn instructions(self) -> &'static str {
        match self {
            Self::Small => "items_ins_v2_1000.json",
            Self::Full => "items_ins_v2.json",
        }
    }
}

const HUMAN: &str = "items_human_ins.json";

/// Attribute of products without an entry in the attribute file.
const NO_ATTRIBUTE: &str = "DUMMY_ATTR";

/// Result of reading a catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogueReport {
    /// Products read.
    pub products: usize,
    /// Invalid products skipped.
    pub skipped: usize,
    /// The first products that were skipped: the file, the line or product number, and the reason.
    pub examples: Vec<String>,
}

const EXAMPLES: usize = 5;

impl CatalogueReport {
    fn skip(&mut self, location: String) {
        self.skipped += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(location);
        }
    }

    /// Returns a warning if products were skipped.
    pub fn warning(&self) -> Option<String> {
        (self.skipped > 0).then(|| {
            let (skipped, all) = (self.skipped, self.skipped + self.products);
            format!("{skipped} of {all} products are left out as unreadable: {}", self.examples.join("; "))
        })
    }
}

/// Returns `Full` if a folder contains only the full catalogue, else `Small`.
pub fn size_of(folder: &Path) -> Size {
    let there = |size: Size| find(folder, &size.products()).is_ok();
    if there(Size::Full) && !there(Size::Small) { Size::Full } else { Size::Small }
}

/// Reads an official catalogue, preprocesses its products like the original and passes them to
/// `each`.
///
/// As in the original, products are skipped if their ASIN is `nan`, repeated or longer than ten
/// characters. `limit` is the maximum number of products to read.
///
/// # Errors
/// Fails if a file is missing or not JSON, or no product is valid.
pub fn read(
    folder: &Path,
    size: Size,
    limit: Option<usize>,
    mut each: impl FnMut(Product) -> Result<(), EnvError>,
) -> Result<CatalogueReport, EnvError> {
    let products = find(folder, &size.products())?;
    let notes = notes(&find(folder, &[size.instructions()])?)?;
    let mut human = match find(folder, &[HUMAN]) {
        Ok(path) => parse::<HashMap<String, Vec<RawHuman>>>(&path)?,
        Err(_) => HashMap::new(),
    };
    let name = products.display().to_string();
    let mut known: HashSet<String> = HashSet::new();
    let mut report = CatalogueReport::default();
    let mut number = 0;
    let mut take = |line: Option<usize>, raw: Result<RawProduct, String>| -> Result<bool, EnvError> {
        if limit.is_some_and(|limit| number >= limit) {
            return Ok(false);
        }
        number += 1;
        let location = match line {
            Some(line) => format!("{name}, line {line}"),
            None => format!("{name}, product number {number}"),
        };
        let raw = match raw {
            Ok(raw) => raw,
            Err(reason) => {
                report.skip(format!("{location}: {reason}"));
                return Ok(true);
            }
        };
        if raw.asin == "nan" || raw.asin.chars().count() > ASIN || known.contains(&raw.asin) {
            return Ok(true);
        }
        let asin = raw.asin.clone();
        match raw.prepare(notes.get(&asin), human.remove(&asin)) {
            Ok(product) => {
                known.insert(asin);
                report.products += 1;
                each(product).map(|()| true)
            }
            Err(reason) => {
                report.skip(format!("{location} (`{asin}`): {reason}"));
                Ok(true)
            }
        }
    };
    let lines = products.to_string_lossy().contains(".jsonl");
    if lines {
        read_lines(&products, &mut take)?;
    } else {
        read_list(&products, &mut take)?;
    }
    if report.products == 0 {
        let first = report.examples.first().map(|first| format!(" that can be read; the first: {first}"));
        let reason = format!("there is no product in it{}", first.unwrap_or_default());
        return Err(EnvError::File { path: name, reason });
    }
    Ok(report)
}

pub(super) fn find(folder: &Path, names: &[&str]) -> Result<PathBuf, EnvError> {
    let candidates = names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}.zst")]);
    candidates.map(|name| folder.join(name)).find(|path| path.is_file()).ok_or_else(|| EnvError::File {
        path: folder.display().to_string(),
        reason: format!(
            "there is no `{}` (or `.zst` of it) in this folder; put the official WebShop files there",
            names.join("` and no `")
        ),
    })
}

pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>, EnvError> {
    turnwise_files::open(path).map_err(|source| EnvError::io(path, source))
}

fn broken(path: &Path, error: &serde_json::Error) -> EnvError {
    let half = if error.is_eof() { "; the file ends too early: fetch it again" } else { "" };
    EnvError::File {
        path: path.display().to_string(),
        reason: format!("not the expected JSON: {error}{half}"),
    }
}

fn parse<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, EnvError> {
    let mut text = Vec::new();
    let io = |source| EnvError::io(path, source);
    open(path)?.read_to_end(&mut text).map_err(io)?;
    serde_json::from_slice(&text).map_err(|error| broken(path, &error))
}

fn notes(path: &Path) -> Result<HashMap<String, Notes>, EnvError> {
    serde_json::from_reader(open(path)?).map_err(|error| broken(path, &error))
}

/// Function that receives a line number, if known, and a product or the reason why it is invalid.
/// The function returns false to stop reading.
type Take<'a> = &'a mut dyn FnMut(Option<usize>, Result<RawProduct, String>) -> Result<bool, EnvError>;

fn read_list(path: &Path, take: Take<'_>) -> Result<(), EnvError> {
    struct Each<'a> {
        take: Take<'a>,
        failed: &'a mut Option<EnvError>,
    }
    impl<'de> DeserializeSeed<'de> for Each<'_> {
        type Value = ();
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_seq(self)
        }
    }
    impl<'de> Visitor<'de> for Each<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of products")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
            let mut wanted = true;
            while wanted {
                let Some(raw) = list.next_element::<Box<RawJson>>()? else { return Ok(()) };
                let raw = serde_json::from_str(raw.get()).map_err(|error| error.to_string());
                wanted = (self.take)(None, raw).unwrap_or_else(|error| {
                    *self.failed = Some(error);
                    false
                });
            }
            // Read the rest to detect a truncated file.
            while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
            Ok(())
        }
    }
    let mut failed = None;
    let mut json = serde_json::Deserializer::from_reader(open(path)?);
    let read = Each { take, failed: &mut failed }.deserialize(&mut json);
    match failed {
        Some(error) => Err(error),
        None => read.and_then(|()| json.end()).map_err(|error| broken(path, &error)),
    }
}

fn read_lines(path: &Path, take: Take<'_>) -> Result<(), EnvError> {
    for (number, line) in (1..).zip(turnwise_files::lines(open(path)?)) {
        let line = line.map_err(|source| EnvError::io(path, source))?;
        if line.trim().is_empty() {
            continue;
        }
        let raw = match serde_json::from_str::<Document>(&line) {
            Ok(document) => Ok(document.product),
            Err(error) if error.is_data() => {
                Err(format!("no document of the search with its `product` inside: {error}"))
            }
            Err(error) => {
                return Err(broken(Path::new(&format!("{}, line {number}", path.display())), &error));
            }
        };
        if !take(Some(number), raw)? {
            break;
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Document {
    product: RawProduct,
}

#[derive(Deserialize)]
struct RawProduct {
    asin: String,
    name: String,
    full_description: Option<String>,
    small_description: Option<OneOrMany>,
    pricing: Option<Pricing>,
    customization_options: Option<Choices>,
    product_category: String,
    category: String,
    query: String,
    #[serde(rename = "Attributes")]
    attributes: Option<Vec<String>>,
    instructions: Option<Vec<RawHuman>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<Option<String>>),
}

/// Price of a product: a text such as `$9.99$12.50` in crawled files, numbers in search documents.
#[derive(Deserialize)]
#[serde(untagged)]
enum Pricing {
    Text(String),
    Numbers(Vec<f64>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Choices {
    Nothing(String),
    Groups(Ordered<Option<Vec<RawValue>>>),
}

#[derive(Deserialize)]
struct RawValue {
    value: String,
}

#[derive(Clone, Deserialize)]
struct Notes {
    attributes: Option<Vec<String>>,
    instruction: Option<String>,
    #[serde(default)]
    instruction_attributes: Vec<String>,
}

#[derive(Deserialize)]
struct RawHuman {
    instruction: String,
    instruction_attributes: Vec<String>,
    instruction_options: Vec<String>,
}

struct Ordered<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Pairs<T> {
            type Value = Ordered<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Ordered(pairs))
            }
        }
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}

impl RawProduct {
    fn prepare(self, notes: Option<&Notes>, human: Option<Vec<RawHuman>>) -> Result<Product, String> {
        if self.asin.is_empty() || self.asin.len() > ASIN {
            return Err(format!("an identifier has 1 to {ASIN} bytes"));
        }
        let mut options: Vec<ProductOption> = Vec::new();
        if let Some(Choices::Groups(Ordered(groups))) = self.customization_options {
            for (name, values) in groups {
                let (Some(values), name) = (values, name.to_lowercase()) else { continue };
                let values: Vec<String> =
                    values.iter().map(|raw| strip(&raw.value).replace('/', " | ").to_lowercase()).collect();
                match options.iter_mut().find(|option| option.name == name) {
                    Some(option) => option.values = values,
                    None => options.push(ProductOption { name, values }),
                }
            }
        } else if let Some(Choices::Nothing(text)) = &self.customization_options
            && !text.is_empty()
        {
            return Err(format!("`customization_options` is the text {text:?}, not an object"));
        }
        let pricing = match self.pricing {
            None => vec![],
            Some(Pricing::Numbers(numbers)) => numbers,
            Some(Pricing::Text(text)) => prices(&text)?,
        };
        let pricing = if pricing.is_empty() { vec![100.0] } else { pricing.into_iter().take(2).collect() };
        let bullet_points = match self.small_description {
            None => vec![],
            Some(OneOrMany::One(text)) => vec![text],
            Some(OneOrMany::Many(texts)) => texts.into_iter().map(Option::unwrap_or_default).collect(),
        };
        let attributes = notes
            .and_then(|notes| notes.attributes.clone())
            .or(self.attributes)
            .unwrap_or_else(|| vec![NO_ATTRIBUTE.to_owned()]);
        let human_instructions = human.or(self.instructions).unwrap_or_default();
        Ok(Product {
            title: self.name,
            category: self.category,
            query: strip(&self.query.to_lowercase()).to_owned(),
            product_category: self.product_category,
            description: self.full_description.unwrap_or_default(),
            bullet_points,
            pricing,
            options,
            attributes,
            instruction_attributes: notes
                .map(|notes| notes.instruction_attributes.clone())
                .unwrap_or_default(),
            instruction: notes.and_then(|notes| notes.instruction.clone()),
            human_instructions: human_instructions.into_iter().map(RawHuman::prepare).collect(),
            asin: self.asin,
            nouns: None,
        })
    }
}

impl RawHuman {
    fn prepare(self) -> HumanInstruction {
        HumanInstruction {
            text: self.instruction,
            attributes: self.instruction_attributes,
            options: self.instruction_options,
        }
    }
}

fn prices(text: &str) -> Result<Vec<f64>, String> {
    if text.is_empty() {
        return Ok(vec![]);
    }
    let number = |part: &str| {
        let digits: String =
            part.chars().filter(|character| character.is_ascii_digit() || *character == '.').collect();
        digits.parse().map_err(|_| format!("`pricing` is {text:?}, in which {part:?} is no price"))
    };
    let prices: Vec<f64> = text.split('$').skip(1).map(number).collect::<Result<_, String>>()?;
    if prices.is_empty() { Err(format!("`pricing` is {text:?}, without a dollar sign")) } else { Ok(prices) }
}
