//! Options shown on product pages.

#[derive(Debug)]
pub(in crate::webshop::generator) struct OptionList {
    pub(in crate::webshop::generator) name: &'static str,
    pub(in crate::webshop::generator) values: &'static [&'static str],
    /// Whether a product gets adjacent values of the list (as for sizes) instead of arbitrary
    /// values (as for colors).
    pub(in crate::webshop::generator) ordered: bool,
}

const fn any(name: &'static str, values: &'static [&'static str]) -> OptionList {
    OptionList { name, values, ordered: false }
}

const fn run(name: &'static str, values: &'static [&'static str]) -> OptionList {
    OptionList { name, values, ordered: true }
}

pub(super) const COLOR: OptionList = any(
    "color",
    &[
        "black",
        "white",
        "charcoal",
        "silver grey",
        "navy",
        "sky blue",
        "teal",
        "forest green",
        "sage",
        "olive",
        "mustard",
        "sand",
        "cream",
        "terracotta",
        "burgundy",
        "cherry red",
        "coral",
        "blush pink",
        "lavender",
        "plum",
        "copper",
        "chocolate brown",
        "midnight blue",
        "mint",
    ],
);
pub(super) const FINISH: OptionList = any(
    "color",
    &[
        "natural oak",
        "walnut",
        "espresso",
        "whitewash",
        "matte black",
        "antique pine",
        "light ash",
        "cherry",
        "slate grey",
        "honey maple",
    ],
);
pub(super) const SHADE: OptionList = any(
    "color",
    &[
        "01 ivory",
        "02 porcelain",
        "03 shell",
        "04 warm beige",
        "05 honey",
        "06 caramel",
        "07 rosewood",
        "08 mocha",
        "09 berry",
        "10 brick",
        "11 nude",
        "12 mauve",
    ],
);
pub(super) const CLOTHES_SIZE: OptionList =
    run("size", &["x-small", "small", "medium", "large", "x-large", "xx-large", "3x-large", "4x-large"]);
pub(super) const SHOE_SIZE: OptionList = run(
    "size",
    &["5", "5.5", "6", "6.5", "7", "7.5", "8", "8.5", "9", "9.5", "10", "10.5", "11", "12", "13"],
);
pub(super) const BED_SIZE: OptionList =
    run("size", &["twin", "twin xl", "full", "queen", "king", "california king"]);
pub(super) const PET_SIZE: OptionList = run("size", &["x-small", "small", "medium", "large", "x-large"]);
pub(super) const VOLUME: OptionList =
    run("size", &["0.5 liter", "0.8 liter", "1 liter", "1.2 liter", "1.5 liter", "1.7 liter", "2 liter"]);
pub(super) const DIAMETER: OptionList =
    run("size", &["6 inch", "8 inch", "9 inch", "10 inch", "12 inch", "14 inch"]);
pub(super) const BOTTLE: OptionList =
    run("size", &["1 fl oz", "1.7 fl oz", "3.4 fl oz", "5 fl oz", "8 fl oz", "12 fl oz", "16 fl oz"]);
pub(super) const WEIGHT: OptionList =
    run("size", &["4 ounce", "8 ounce", "12 ounce", "1 pound", "2 pound", "5 pound", "10 pound"]);
pub(super) const LENGTH: OptionList =
    run("size", &["3 feet", "6 feet", "10 feet", "15 feet", "25 feet", "50 feet"]);
pub(super) const AREA: OptionList =
    run("size", &["2 x 3 feet", "3 x 5 feet", "4 x 6 feet", "5 x 8 feet", "8 x 10 feet", "9 x 12 feet"]);
pub(super) const SCREEN: OptionList = run(
    "size",
    &["5.4 inch", "6.1 inch", "6.7 inch", "8 inch", "10.2 inch", "11 inch", "13 inch", "15.6 inch"],
);
pub(super) const STORAGE: OptionList =
    run("capacity", &["32 gb", "64 gb", "128 gb", "256 gb", "512 gb", "1 tb"]);
pub(super) const SHEETS: OptionList = run("size", &["a6", "a5", "b5", "a4", "a3"]);
pub(super) const AGE: OptionList =
    run("age", &["2-3 years", "3-4 years", "5-6 years", "7-8 years", "9-10 years"]);
pub(super) const LOAD: OptionList =
    run("weight", &["5 lb", "10 lb", "15 lb", "20 lb", "25 lb", "30 lb", "40 lb", "50 lb"]);
pub(super) const PACK: OptionList =
    run("number of items", &["1 pack", "2 pack", "3 pack", "4 pack", "6 pack", "8 pack", "12 pack"]);
pub(super) const FLAVOR: OptionList = any(
    "flavor name",
    &[
        "sea salt",
        "dark chocolate",
        "vanilla",
        "cinnamon",
        "honey",
        "maple",
        "lemon",
        "ginger",
        "smoked paprika",
        "rosemary",
        "coconut",
        "peanut butter",
        "wild berry",
        "apple",
        "chili lime",
        "original",
    ],
);
pub(super) const SCENT: OptionList = any(
    "scent",
    &[
        "unscented",
        "lavender",
        "rose",
        "sandalwood",
        "eucalyptus",
        "citrus",
        "cedar",
        "jasmine",
        "green tea",
        "vanilla",
        "bergamot",
        "sea breeze",
    ],
);
pub(super) const PATTERN: OptionList = any(
    "pattern name",
    &[
        "solid",
        "stripes",
        "plaid",
        "polka dots",
        "floral",
        "geometric",
        "herringbone",
        "leaves",
        "waves",
        "stars",
    ],
);
pub(super) const FIT: OptionList = any("fit type", &["men", "women", "youth", "unisex"]);
pub(super) const STYLE: OptionList = any(
    "style",
    &["basic", "deluxe", "with lid", "with stand", "travel", "gift box", "starter set", "refill"],
);
pub(super) const MEAT: OptionList =
    any("flavor name", &["chicken", "beef", "salmon", "duck", "lamb", "turkey", "rabbit", "venison"]);
