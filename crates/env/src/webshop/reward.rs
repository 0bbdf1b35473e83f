//! Scores and rewards for purchases.
//!
//! ```text
//! score = (attributes met + options met + price met) / (attributes requested + options requested + 1) * type factor
//! ```

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::fuzzy::Words;
use super::goal::{Goal, GoalOptions};
use super::product::Product;
use crate::python::pair;

const ALIKE: u32 = 85;

/// Colour names in the original's alphabetical order.
const COLOURS: &str = "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown \
    burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral \
    cranberry cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green \
    grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight \
    mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose \
    royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise \
    violet walnut wheat white wine yellow";

static FUNCTION_WORDS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| FUNCTION_LIST.split_ascii_whitespace().collect());

const FUNCTION_LIST: &str = "a about all also an and any are as at be best both brand but by can each easy for free from \
    good great has high her his i ideal in inch inches into is it its large long low made medium more most my new no not \
    of off on one only or our out pack pcs perfect per piece pieces quality set short size small so that the their them \
    these they this to two up use used very w was we will with without x you your";

/// How option values are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Matching {
    /// As in the original, a text that contains colour names is replaced by the alphabetically
    /// first of them (`light blue` becomes `blue`, `tailored` becomes `red`). A requested option of
    /// a synthetic goal becomes the printed Python tuple of name and value, or the colour if either
    /// is exactly a colour.
    #[default]
    Original,
    /// Requires the exact value and, for synthetic goals, also the option's name.
    Strict,
}

/// Reward for a purchase. Success always means a score of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reward {
    /// 1 for a score of 1, else 0. verl-agent multiplies it by 10 (`env.reward_scale = 10`).
    #[default]
    Success,
    /// The score from 0 to 1, as in the original.
    Score,
}

impl Reward {
    /// Returns the reward for a score.
    pub fn of(self, score: Score) -> f64 {
        match self {
            Self::Success => f64::from(score.success()),
            Self::Score => score.total(),
        }
    }
}

/// How well a product's type matches the goal's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TypeScore {
    /// Whether the product's `query` equals that of the goal's product.
    pub query_match: bool,
    /// Whether the two products share at least two categories.
    pub category_match: bool,
    /// Title score; see [`Judge::type_score`].
    pub title_score: f64,
    /// Factor on the score: 1, 0.5, 0.1 or 0.
    pub factor: f64,
    /// Whether the title score is approximate.
    pub type_stand_in: bool,
}

/// Score of a purchase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Attributes met.
    pub attributes: usize,
    /// Attributes requested.
    pub attributes_asked: usize,
    /// Options met.
    pub options: usize,
    /// Options requested.
    pub options_asked: usize,
    /// Whether the price limit is met.
    pub price: bool,
    /// Match of the product's type.
    pub kind: TypeScore,
}

impl Score {
    /// Returns the score, from 0 to 1.
    pub fn total(&self) -> f64 {
        let met = self.attributes + self.options + usize::from(self.price);
        met as f64 / (self.attributes_asked + self.options_asked + 1) as f64 * self.kind.factor
    }

    /// Returns true if the score is 1.
    pub fn success(&self) -> bool {
        self.total() == 1.0
    }

    /// Returns true if meeting at most `dropped` more options would give a score of 1.
    pub(crate) fn but_for_options(&self, dropped: usize) -> bool {
        let options = (self.options + dropped).min(self.options_asked);
        Self { options, ..*self }.success()
    }
}

/// A goal prepared for scoring purchases.
#[derive(Clone, Debug)]
pub struct Judge {
    goal: Goal,
    target: Target,
    attributes: Vec<Words>,
    options: Vec<Words>,
    matching: Matching,
}

#[derive(Clone, Debug)]
struct Target {
    query: String,
    categories: BTreeSet<String>,
    title: String,
    nouns: Option<Vec<String>>,
    words: Vec<String>,
}

impl Judge {
    /// Prepares a goal for scoring. `target` is the goal's product.
    pub fn new(goal: Goal, target: &Product, matching: Matching) -> Self {
        let attributes = goal.attributes.iter().map(|attribute| Words::new(attribute)).collect();
        let options = match &goal.options {
            GoalOptions::Named(options) => options
                .iter()
                .map(|(name, value)| match colours().find(|colour| colour == name || colour == value) {
                    Some(colour) => Words::new(colour),
                    None => Words::new(&pair(name, value)),
                })
                .collect(),
            GoalOptions::Values(values) => {
                values.iter().map(|value| Words::new(normalize_colour(value))).collect()
            }
        };
        let target = Target {
            query: target.query.clone(),
            categories: categories(&target.product_category).map(str::to_owned).collect(),
            title: target.title.clone(),
            nouns: target.nouns.clone(),
            words: content_words(&target.title),
        };
        Self { goal, target, attributes, options, matching }
    }

    /// Returns the goal.
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// Scores the purchase of a product at this price with these selected options (name, value).
    pub fn score(&self, product: &Product, price: f64, options: &[(String, String)]) -> Score {
        Score {
            attributes: self.attributes_met(product),
            attributes_asked: self.attributes.len(),
            options: self.options_met(options),
            options_asked: self.goal.options.len(),
            price: price <= self.goal.price_upper,
            kind: self.type_score(product),
        }
    }

    /// Counts the requested attributes that resemble one of the product's attributes or occur in
    /// its title, bullet points or description.
    pub(crate) fn attributes_met(&self, product: &Product) -> usize {
        let own: Vec<Words> = product.attributes.iter().map(|attribute| Words::new(attribute)).collect();
        let mut texts: Option<[String; 3]> = None;
        let met = |(asked, words): &(&String, &Words)| {
            own.iter().any(|attribute| attribute.token_set_ratio(words) > ALIKE)
                || texts
                    .get_or_insert_with(|| {
                        let bullets = product.bullet_points.join(" ");
                        [&product.title, &bullets, &product.description].map(|text| text.to_lowercase())
                    })
                    .iter()
                    .any(|text| text.contains(asked.as_str()))
        };
        self.goal.attributes.iter().zip(&self.attributes).filter(met).count()
    }

    /// Counts the requested options that are met by a selected option.
    pub(crate) fn options_met(&self, chosen: &[(String, String)]) -> usize {
        match (self.matching, &self.goal.options) {
            (Matching::Original, _) => {
                let chosen: Vec<Words> =
                    chosen.iter().map(|(_, value)| Words::new(normalize_colour(value))).collect();
                let met = |asked: &&Words| chosen.iter().any(|words| words.token_set_ratio(asked) > ALIKE);
                self.options.iter().filter(met).count()
            }
            (Matching::Strict, GoalOptions::Named(asked)) => {
                asked.iter().filter(|option| chosen.contains(option)).count()
            }
            (Matching::Strict, GoalOptions::Values(asked)) => {
                let same = |asked: &&String| chosen.iter().any(|(_, value)| value == *asked);
                asked.iter().filter(same).count()
            }
        }
    }

    /// Returns the type factor of the score.
    ///
    /// ```text
    /// title score = |set(nouns of the title) ∩ set(nouns of the wanted title)| / length of the list of the latter
    /// ```
    ///
    /// Repeated nouns count in the list of the wanted title's nouns, but not in the sets. The title
    /// score is 0.2 if the wanted title has no nouns.
    ///
    /// The factor is 0 if the title score is 0, and 0.1 if it is below 0.1. Otherwise the factor is
    /// 1 if both products have the same `query` or share two categories, or if the title score is
    /// above 0.2; else 0.5.
    ///
    /// If the nouns of a title are unknown ([`super::nouns`]), all words except common function
    /// words are compared instead. In this case, `type_stand_in` is set if the titles differ.
    pub fn type_score(&self, product: &Product) -> TypeScore {
        let query_match = product.query == self.target.query;
        let shared: BTreeSet<&str> = categories(&product.product_category)
            .filter(|category| self.target.categories.contains(*category))
            .collect();
        let category_match = shared.len() >= 2;
        let same = product.title == self.target.title;
        let (title_score, exact) = match (&self.target.nouns, &product.nouns) {
            (Some(wanted), Some(nouns)) => (title_score(wanted, nouns), true),
            _ => (title_score(&self.target.words, &content_words(&product.title)), false),
        };
        let factor = if title_score == 0.0 {
            0.0
        } else if title_score < 0.1 {
            0.1
        } else if query_match || category_match || title_score > 0.2 {
            1.0
        } else {
            0.5
        };
        TypeScore { query_match, category_match, title_score, factor, type_stand_in: !same && !exact }
    }
}

fn colours() -> impl Iterator<Item = &'static str> {
    COLOURS.split_ascii_whitespace()
}

fn normalize_colour(text: &str) -> &str {
    colours().find(|colour| text.contains(colour)).unwrap_or(text)
}

fn categories(path: &str) -> impl Iterator<Item = &str> {
    path.split('\u{203a}').map(crate::python::strip)
}

fn title_score(wanted: &[String], found: &[String]) -> f64 {
    if wanted.is_empty() {
        return 0.2;
    }
    let found: HashSet<&str> = found.iter().map(String::as_str).collect();
    let shared: HashSet<&str> =
        wanted.iter().map(String::as_str).filter(|word| found.contains(word)).collect();
    shared.len() as f64 / wanted.len() as f64
}

fn content_words(title: &str) -> Vec<String> {
    let lower = title.to_lowercase();
    let words = lower.split(|character: char| !character.is_alphanumeric() && character != '\'');
    words
        .map(|word| word.trim_end_matches("'s").trim_matches('\''))
        .filter(|word| word.chars().any(char::is_alphabetic) && word.chars().nth(1).is_some())
        .filter(|word| !FUNCTION_WORDS.contains(word))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(title: &str, category: &str, query: &str) -> Product {
        Product {
            title: title.to_owned(),
            product_category: category.to_owned(),
            query: query.to_owned(),
            attributes: vec!["machine wash".to_owned()],
            bullet_points: vec!["Made with a Rubber Sole".to_owned()],
            ..Product::default()
        }
    }

    fn goal(options: GoalOptions) -> Goal {
        Goal {
            id: "synthetic/A/0".to_owned(),
            product: 0,
            instruction: String::new(),
            attributes: ["machine washable", "rubber sole", "long sleeve"].map(str::to_owned).to_vec(),
            options,
            price_upper: 30.0,
        }
    }

    fn named(options: &[(&str, &str)]) -> GoalOptions {
        GoalOptions::Named(chosen(options))
    }

    fn chosen(options: &[(&str, &str)]) -> Vec<(String, String)> {
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn met(matching: Matching, asked: GoalOptions, options: &[(&str, &str)]) -> usize {
        let shirt = product("Cotton Shirt", "Clothing", "shirts");
        Judge::new(goal(asked), &shirt, matching).options_met(&chosen(options))
    }

    #[test]
    fn the_parts_of_a_score_add_up() {
        let shirt = product("Cotton Shirt", "Clothing \u{203a} Men", "shirts");
        let judge = Judge::new(goal(named(&[("size", "x-large")])), &shirt, Matching::Original);
        let score = judge.score(&shirt, 30.0, &chosen(&[("size", "x-large")]));
        assert_eq!((score.attributes, score.options, score.price), (2, 1, true));
        assert_eq!(score.total(), 4.0 / 5.0);
        assert!(!score.kind.type_stand_in);
        assert_eq!(judge.score(&shirt, 30.01, &[]).total(), 2.0 / 5.0);
    }

    #[test]
    fn types_by_kind_category_and_title() {
        let shirt = product("Slim Cotton Shirt for Men", "Clothing \u{203a} Men \u{203a} Shirts", "shirts");
        let judge = Judge::new(goal(GoalOptions::Values(vec![])), &shirt, Matching::Original);
        let factor = |title: &str, category: &str, query: &str| {
            let score = judge.type_score(&product(title, category, query));
            assert_eq!(score.type_stand_in, title != shirt.title);
            score.factor
        };
        assert_eq!(factor("Slim Cotton Shirt for Men", "", ""), 1.0);
        assert_eq!(factor("Cotton Towel", "Home", "towels"), 1.0);
        assert_eq!(factor("Garden Hose", "Clothing \u{203a} Men", "shirts"), 0.0);
        let long = "shirt mango pear apple plum grape melon cherry lemon kiwi fig date";
        let judge = Judge::new(goal(GoalOptions::Values(vec![])), &product(long, "", ""), Matching::Original);
        let of = |title: &str, query: &str| judge.type_score(&product(title, "x", query)).factor;
        assert_eq!([of("Shirt", ""), of("Shirt pear", ""), of("Shirt pear", "q")], [0.1, 1.0, 0.5]);
    }

    #[test]
    fn the_title_score_counts_repeats_below_and_not_above() {
        let nouns = |title: &str, nouns: &[&str]| Product {
            nouns: Some(nouns.iter().map(|noun| (*noun).to_owned()).collect()),
            ..product(title, title, title)
        };
        let wanted = ["mug", "mug", "mug", "mug", "mug", "handle", "coffee", "tea", "cup", "gift"];
        let target = nouns("Mug Mug Mug Mug Mug with Handle, Coffee Tea Cup Gift", &wanted);
        let judge = Judge::new(goal(GoalOptions::Values(vec![])), &target, Matching::Original);
        let of = |found: &[&str]| judge.type_score(&nouns("Other", found));
        assert_eq!((of(&["mug"]).title_score, of(&["mug"]).factor), (0.1, 0.5));
        assert_eq!((of(&["mug", "mug", "tea"]).title_score, of(&["mug", "tea"]).factor), (0.2, 0.5));
        assert_eq!((of(&["mug", "tea", "cup"]).factor, of(&["pot"]).factor), (1.0, 0.0));
        assert!(!of(&["mug"]).type_stand_in);
        let unknown = judge.type_score(&product("Mug", "x", "x"));
        assert!(unknown.type_stand_in && unknown.title_score == 0.1, "{unknown:?}");
        let own = judge.type_score(&target);
        assert_eq!((own.title_score, own.factor, own.type_stand_in), (0.6, 1.0, false));
        let judge = Judge::new(goal(GoalOptions::Values(vec![])), &nouns("Blue", &[]), Matching::Original);
        assert_eq!(judge.type_score(&nouns("Red", &["red"])).title_score, 0.2);
    }

    #[test]
    fn options_match_as_in_the_original() {
        let original = |asked, options: &[(&str, &str)]| met(Matching::Original, asked, options);
        let strict = |asked, options: &[(&str, &str)]| met(Matching::Strict, asked, options);
        let light = || named(&[("color", "light blue")]);
        assert_eq!(original(light(), &[("color", "light blue")]), 1);
        assert_eq!(original(light(), &[("color", "dark blue")]), 1);
        assert_eq!(strict(light(), &[("color", "dark blue")]), 0);
        assert_eq!(strict(light(), &[("color", "light blue")]), 1);
        assert_eq!(strict(light(), &[("finish", "light blue")]), 0);
        let values = |value: &str| GoalOptions::Values(vec![value.to_owned()]);
        assert_eq!(original(values("tailored"), &[("fit", "red")]), 1);
        assert_eq!(strict(values("tailored"), &[("fit", "red")]), 0);
        assert_eq!(original(values("x-large"), &[("size", "small")]), 0);
    }
}
