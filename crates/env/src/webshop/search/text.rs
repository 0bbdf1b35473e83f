//! The text of a product that is indexed for search.

use crate::webshop::Product;

/// Returns the indexed text of a product in lower case: title, description, first bullet point and
/// options.
///
/// Options are formatted as `size: small, large, and color: black`. Spaces are the same as in the
/// original's indexing script.
pub fn document_text(product: &Product) -> String {
    let first = product.bullet_points.first().map_or("", String::as_str);
    let options: Vec<String> = product
        .options
        .iter()
        .map(|option| format!("{}: {}", option.name, option.values.join(", ")))
        .collect();
    [product.title.as_str(), &product.description, first, &options.join(", and ")].join(" ").to_lowercase()
}
