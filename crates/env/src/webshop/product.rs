//! One product of the shop, with the fields that the original has after loading its files.

use serde::{Deserialize, Serialize};

/// One product.
///
/// The text of titles, descriptions and bullet points keeps its case; option names and values are lower case,
/// as the original makes them when it loads a catalogue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Product {
    /// The identifier: ten letters and digits, upper case, unique in a catalogue.
    pub asin: String,
    /// The title, as shown in result lists.
    pub title: String,
    /// The department, for example `garden`.
    pub category: String,
    /// The kind of product that it was found under, for example `console tables`; goals name it.
    pub query: String,
    /// The path in the shop's tree of categories, joined by ` › `.
    pub product_category: String,
    /// The text of the description page; may be empty.
    pub description: String,
    /// The lines of the features page.
    pub bullet_points: Vec<String>,
    /// One price in dollars, or the two ends of a range, lower first.
    pub pricing: Vec<f64>,
    /// Options that can be chosen, in the order shown.
    pub options: Vec<ProductOption>,
    /// All attributes that the product is known to have.
    pub attributes: Vec<String>,
    /// The attributes that an instruction made for this product asks for.
    pub instruction_attributes: Vec<String>,
    /// A sentence that asks for this product by `query` and `instruction_attributes`, without
    /// options and price; `None` if the files have none.
    pub instruction: Option<String>,
    /// Instructions in people's own words.
    pub human_instructions: Vec<HumanInstruction>,
    /// The nouns and names of the title in lower case, in order and with repeats, as a part-of-speech
    /// tagger found them; `None` if the catalogue has none ([`super::nouns`]).
    #[serde(skip)]
    pub nouns: Option<Vec<String>>,
}

/// One thing to choose on a product page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductOption {
    /// Name of the option, for example `color`.
    pub name: String,
    /// Values to choose from, in the order shown.
    pub values: Vec<String>,
}

/// An instruction written by a person, with its requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HumanInstruction {
    /// The sentence, without a price.
    pub text: String,
    /// The attributes it asks for.
    pub attributes: Vec<String>,
    /// The option values it asks for.
    pub options: Vec<String>,
}
