//! WebShop: buying the product that an instruction describes, in a shop of searchable pages (Yao et al. 2022).

pub mod product;

pub use product::{HumanInstruction, Product, ProductOption};
