//! Products with the original's fields.

use serde::{Deserialize, Serialize};

/// A product. Option names and values are in lower case, as in the original.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Product {
    /// Unique id of ten upper-case letters and digits.
    pub asin: String,
    /// Title.
    pub title: String,
    /// Department, for example `garden`.
    pub category: String,
    /// Product type named in goals, for example `console tables`.
    pub query: String,
    /// Category path, separated by ` › `.
    pub product_category: String,
    /// Text of the description page.
    pub description: String,
    /// Lines on the features page.
    pub bullet_points: Vec<String>,
    /// Price in dollars, or both ends of a range.
    pub pricing: Vec<f64>,
    /// Options in display order.
    pub options: Vec<ProductOption>,
    /// Attributes.
    pub attributes: Vec<String>,
    /// Attributes that the instruction requests.
    pub instruction_attributes: Vec<String>,
    /// Instruction without options and price.
    pub instruction: Option<String>,
    /// Human instructions.
    pub human_instructions: Vec<HumanInstruction>,
    /// Nouns of the title ([`super::nouns`]), or `None` if they are unknown.
    #[serde(skip)]
    pub nouns: Option<Vec<String>>,
}

/// A product option.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductOption {
    /// Name, for example `color`.
    pub name: String,
    /// Values in display order.
    pub values: Vec<String>,
}

/// A human instruction and its requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HumanInstruction {
    /// Instruction without a price.
    pub text: String,
    /// Requested attributes.
    pub attributes: Vec<String>,
    /// Requested option values.
    pub options: Vec<String>,
}
