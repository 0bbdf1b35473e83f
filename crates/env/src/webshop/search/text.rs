//! The searched text of a product.

use crate::webshop::Product;

/// Returns the searched text of a product in lower case: title, description, first bullet point and
/// options.
///
/// Options read `size: small, large, and color: black`, as in the original's indexing script,
/// including its blanks.
pub fn document_text(product: &Product) -> String {
    let first = product.bullet_points.first().map_or("", String::as_str);
    let options: Vec<String> = product
        .options
        .iter()
        .map(|option| format!("{}: {}", option.name, option.values.join(", ")))
        .collect();
    [product.title.as_str(), &product.description, first, &options.join(", and ")].join(" ").to_lowercase()
}
