//! Indexed text of a product.

use crate::webshop::Product;

/// Returns title, description, first bullet point and options in lower case, with the same spaces
/// as in the original's script. Options have the form `size: small, large, and color: black`.
pub fn document_text(product: &Product) -> String {
    let first = product.bullet_points.first().map_or("", String::as_str);
    let options: Vec<String> = product
        .options
        .iter()
        .map(|option| format!("{}: {}", option.name, option.values.join(", ")))
        .collect();
    [product.title.as_str(), &product.description, first, &options.join(", and ")].join(" ").to_lowercase()
}
