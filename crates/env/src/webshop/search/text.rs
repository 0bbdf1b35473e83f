//! The text under which a product is found.

use crate::webshop::Product;

/// Returns the searched text of a product: title, description, first bullet point and options, in lower case.
///
/// The options read `size: small, large, and color: black`. This is the rule of the original's indexing script,
/// its blanks included.
pub fn document_text(product: &Product) -> String {
    let first = product.bullet_points.first().map_or("", String::as_str);
    let options: Vec<String> = product
        .options
        .iter()
        .map(|option| format!("{}: {}", option.name, option.values.join(", ")))
        .collect();
    [product.title.as_str(), &product.description, first, &options.join(", and ")].join(" ").to_lowercase()
}
