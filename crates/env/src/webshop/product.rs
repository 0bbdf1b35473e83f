//! Products, with the same fields as in the original after loading its files.

use serde::{Deserialize, Serialize};

/// A product in the shop.
///
/// Titles, descriptions and bullet points keep their letter case. Option names and values are
/// lower-cased, as in the original.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Product {
    /// ASIN: ten upper-case letters and digits that are unique in a catalogue.
    pub asin: String,
    /// Title, as shown in result lists.
    pub title: String,
    /// Department, for example `garden`.
    pub category: String,
    /// Type of product, for example `console tables`. Goals mention it.
    pub query: String,
    /// Path in the category tree, separated by ` › `.
    pub product_category: String,
    /// Text of the description page. May be empty.
    pub description: String,
    /// Lines on the features page.
    pub bullet_points: Vec<String>,
    /// Price in dollars, or the lower and upper end of a price range.
    pub pricing: Vec<f64>,
    /// Available options in display order.
    pub options: Vec<ProductOption>,
    /// The product's attributes.
    pub attributes: Vec<String>,
    /// Attributes requested by the product's instruction.
    pub instruction_attributes: Vec<String>,
    /// Instruction with `query` and `instruction_attributes` but without options and price, or
    /// `None` if missing.
    pub instruction: Option<String>,
    /// Instructions written by people for this product.
    pub human_instructions: Vec<HumanInstruction>,
    /// Nouns and proper nouns in the title, in lower case and title order, including repetitions.
    /// `None` without a side file ([`super::nouns`]).
    #[serde(skip)]
    pub nouns: Option<Vec<String>>,
}

/// An option on a product page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductOption {
    /// Option name, for example `color`.
    pub name: String,
    /// Option values in display order.
    pub values: Vec<String>,
}

/// An instruction written by a person, with its requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HumanInstruction {
    /// The instruction text, without a price.
    pub text: String,
    /// Requested attributes.
    pub attributes: Vec<String>,
    /// Requested option values.
    pub options: Vec<String>,
}
