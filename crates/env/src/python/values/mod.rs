//! Python values, operators, exceptions and expressions.

mod convert;
mod evaluate;
mod literals;
mod numbers;
mod operators;
mod raise;
mod syntax;
mod text;
mod value;

pub use convert::{date, float_of, int_of, lower, split_lines, words};
pub use evaluate::{Caller, evaluate};
pub use numbers::{power, round};
pub use operators::{
    Order, abs, add, add_in_place, compare, contains, divide, hashable, is_less, iterate, length, multiply,
    negate, remainder, str_method, subtract, subtract_in_place, sum,
};
pub use raise::{Class, Raise};
pub use syntax::{Expression, Operator, assignments, calls, parse};
pub use text::{NotJson, two_decimals};
pub use value::{Dict, Value, dict};
