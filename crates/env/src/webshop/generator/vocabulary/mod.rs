//! Vocabulary: twelve categories with types, attributes and options.

mod home;
mod options;
mod outdoors;
mod person;

pub(super) use options::OptionList;

#[derive(Debug)]
pub(super) struct Category {
    pub(super) name: &'static str,
    pub(super) root: &'static str,
    pub(super) attributes: &'static [(&'static str, &'static str)],
    pub(super) kinds: &'static [Kind],
}

#[derive(Debug)]
pub(super) struct Kind {
    pub(super) query: &'static str,
    pub(super) noun: &'static str,
    pub(super) path: &'static str,
    pub(super) prices: (f64, f64),
    pub(super) options: &'static [&'static OptionList],
}

/// All categories. Product `i` belongs to category `i % 12`.
pub(super) const CATEGORIES: [&Category; 12] = [
    &home::KITCHEN,
    &person::CLOTHING,
    &person::SHOES,
    &person::BEAUTY,
    &home::ELECTRONICS,
    &home::GROCERY,
    &home::FURNITURE,
    &outdoors::GARDEN,
    &outdoors::PETS,
    &outdoors::SPORTS,
    &person::TOYS,
    &home::OFFICE,
];

pub(super) const BRANDS: ([&str; 24], [&str; 24]) = (
    [
        "Nor", "Bel", "Hav", "Tolm", "Ard", "Quill", "Ves", "Lumo", "Kest", "Orr", "Fen", "Mira", "Dal",
        "Sorr", "Wyn", "Pell", "Rook", "Zan", "Ivo", "Cald", "Thim", "Jor", "Esk", "Umber",
    ],
    [
        "vale", "wick", "mere", "ora", "stead", "ella", "ton", "ique", "rin", "dale", "by", "mont", "sen",
        "ley", "ford", "ano", "heim", "lux", "field", "ette", "worth", "nova", "park", "lin",
    ],
);

pub(super) const SERIES: [&str; 20] = [
    "Aster", "Birch", "Cove", "Dune", "Ember", "Fjord", "Grove", "Harbor", "Isle", "Juniper", "Kite", "Lark",
    "Meadow", "North", "Opal", "Prairie", "Ridge", "Sable", "Tide", "Willow",
];
