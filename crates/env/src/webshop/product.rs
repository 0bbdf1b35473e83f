//! Products, with the fields that the original has after loading its files.

use serde::{Deserialize, Serialize};

/// A product of the shop.
///
/// Titles, descriptions and bullet points keep their case. Option names and values are in lower
/// case, as in the original.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Product {
    /// ASIN: ten upper-case letters and digits, unique in a catalogue.
    pub asin: String,
    /// Title in result lists.
    pub title: String,
    /// Department, for example `garden`.
    pub category: String,
    /// Type of product, for example `console tables`; goals name it.
    pub query: String,
    /// Path in the category tree, joined by ` › `.
    pub product_category: String,
    /// Text of the description page; may be empty.
    pub description: String,
    /// Lines of the features page.
    pub bullet_points: Vec<String>,
    /// Price in dollars, or both ends of a range, lower first.
    pub pricing: Vec<f64>,
    /// Available options in display order.
    pub options: Vec<ProductOption>,
    /// Attributes of the product.
    pub attributes: Vec<String>,
    /// Attributes that its instruction requests.
    pub instruction_attributes: Vec<String>,
    /// Instruction with `query` and `instruction_attributes`, without options and price; `None` if
    /// the files have none.
    pub instruction: Option<String>,
    /// Instructions written by people.
    pub human_instructions: Vec<HumanInstruction>,
    /// Nouns and names of the title in lower case, in order and with repeats; `None` without a side
    /// file ([`super::nouns`]).
    #[serde(skip)]
    pub nouns: Option<Vec<String>>,
}

/// An option on a product page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductOption {
    /// Name of the option, for example `color`.
    pub name: String,
    /// Values in display order.
    pub values: Vec<String>,
}

/// An instruction written by a person, with its requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HumanInstruction {
    /// The instruction without a price.
    pub text: String,
    /// Requested attributes.
    pub attributes: Vec<String>,
    /// Requested option values.
    pub options: Vec<String>,
}
