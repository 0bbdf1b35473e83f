//! Builds names from a small set of parts.

use turnwise_core::Rng;

const FEMALE: [&str; 16] = [
    "Ad", "Bel", "Cor", "Dor", "El", "Fen", "Gil", "Hel", "Is", "Jul", "Kat", "Lor", "Mir", "Nor", "Ol",
    "Ros",
];
const FEMALE_ENDS: [&str; 4] = ["a", "ina", "ette", "ise"];
const MALE: [&str; 16] = [
    "Al", "Bor", "Con", "Dar", "Ed", "Fer", "Gar", "Har", "Iv", "Jor", "Kal", "Leon", "Mar", "Nath", "Osw",
    "Rol",
];
const MALE_ENDS: [&str; 4] = ["an", "rik", "mund", "o"];
const SURNAMES: [&str; 16] = [
    "Ash", "Bran", "Cald", "Dun", "Eld", "Farn", "Glen", "Hol", "Karn", "Lang", "Mor", "Nor", "Oak", "Pen",
    "Raven", "Thorn",
];
const SURNAME_ENDS: [&str; 8] = ["by", "dale", "ford", "hurst", "ley", "mere", "ton", "wick"];
const TOWN_PREFIXES: [&str; 10] =
    ["Old", "New", "Port", "Upper", "Lower", "North", "South", "East", "West", "Saint"];
const TOWNS: [&str; 12] =
    ["Ver", "Tar", "Sel", "Ral", "Quin", "Pol", "Osk", "Nav", "Lim", "Kes", "Jul", "Hav"];
const TOWN_ENDS: [&str; 4] = ["ano", "burg", "grad", "mont"];
const COUNTRIES: [&str; 12] =
    ["Aro", "Bel", "Cas", "Dra", "Ere", "Fal", "Gor", "Hes", "Ist", "Kor", "Lav", "Mer"];
const COUNTRY_ENDS: [&str; 2] = ["via", "land"];
const RIVERS: [&str; 12] = ["Ar", "Br", "Cl", "Dr", "Fl", "Gr", "Il", "Kl", "Or", "Sk", "Tr", "Ur"];
const RIVER_ENDS: [&str; 4] = ["une", "ome", "isk", "ava"];
const ADJECTIVES: [&str; 40] = [
    "Amber", "Blue", "Bronze", "Broken", "Clear", "Copper", "Crimson", "Crystal", "Dark", "Distant", "Empty",
    "Frozen", "Gentle", "Golden", "Green", "Grey", "Hidden", "Hollow", "Iron", "Ivory", "Little", "Lonely",
    "Lost", "Marble", "Painted", "Pale", "Quiet", "Red", "Royal", "Ruby", "Scarlet", "Secret", "Silent",
    "Silver", "Stone", "Sudden", "Velvet", "White", "Wild", "Winter",
];
const NOUNS: [&str; 50] = [
    "Anchor", "Arch", "Bell", "Bird", "Bridge", "Candle", "Castle", "Chapel", "Cloud", "Coast", "Crown",
    "Dance", "Door", "Dream", "Feather", "Field", "Flame", "Flower", "Forest", "Fountain", "Garden", "Gate",
    "Harbour", "Harp", "Hill", "Horn", "House", "Island", "Key", "Lake", "Lamp", "Letter", "Lion", "Mask",
    "Meadow", "Mirror", "Moon", "Mountain", "Orchard", "Palace", "Ring", "Road", "Rose", "Sail", "Shadow",
    "Ship", "Star", "Storm", "Tower", "Valley",
];
const EVENTS: [&str; 15] = [
    "Auction",
    "Congress",
    "Contest",
    "Cup",
    "Derby",
    "Duel",
    "Fair",
    "Festival",
    "Marathon",
    "Parade",
    "Rally",
    "Regatta",
    "Summit",
    "Tournament",
    "Trial",
];

pub(super) struct Names {
    women: Pool,
    men: Pool,
    towns: Pool,
    works: Pool,
    events: Pool,
    pub(super) countries: Vec<String>,
    pub(super) rivers: Vec<String>,
}

impl Names {
    pub(super) fn shuffled(rng: &mut Rng) -> Self {
        let surnames = joined(&SURNAMES, "", &SURNAME_ENDS);
        let full = |first: &[&str], ends: &[&str]| {
            let first = joined(first, "", ends);
            let pairs =
                first.iter().flat_map(|first| surnames.iter().map(move |last| format!("{first} {last}")));
            pairs.collect::<Vec<_>>()
        };
        let towns = joined(&TOWNS, "", &TOWN_ENDS);
        let towns: Vec<&str> = towns.iter().map(String::as_str).collect();
        let titled = |nouns: &[&str]| {
            let pairs = ADJECTIVES
                .iter()
                .flat_map(|first| nouns.iter().map(move |noun| format!("The {first} {noun}")));
            pairs.collect::<Vec<_>>()
        };
        let mut pool = |names: Vec<String>| {
            let mut names = names;
            rng.shuffle(&mut names);
            Pool(names)
        };
        Self {
            women: pool(full(&FEMALE, &FEMALE_ENDS)),
            men: pool(full(&MALE, &MALE_ENDS)),
            towns: pool(joined(&TOWN_PREFIXES, " ", &towns)),
            works: pool(titled(&NOUNS)),
            events: pool(titled(&EVENTS)),
            countries: joined(&COUNTRIES, "", &COUNTRY_ENDS),
            rivers: joined(&RIVERS, "", &RIVER_ENDS),
        }
    }

    pub(super) fn person(&mut self, female: bool) -> String {
        if female { self.women.next() } else { self.men.next() }
    }

    pub(super) fn town(&mut self) -> String {
        self.towns.next()
    }

    pub(super) fn work(&mut self) -> String {
        self.works.next()
    }

    pub(super) fn event(&mut self) -> String {
        self.events.next()
    }
}

struct Pool(Vec<String>);

impl Pool {
    fn next(&mut self) -> String {
        self.0.pop().unwrap_or_default()
    }
}

fn joined(starts: &[&str], between: &str, ends: &[&str]) -> Vec<String> {
    starts.iter().flat_map(|start| ends.iter().map(move |end| format!("{start}{between}{end}"))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use turnwise_core::{Purpose, Seed};

    use super::*;

    #[test]
    fn there_are_enough_names_and_none_twice() {
        let names = Names::shuffled(&mut Seed::derive(0, Purpose::World, &[]).rng());
        for (pool, least) in [
            (&names.women, 6500),
            (&names.men, 6500),
            (&names.towns, 480),
            (&names.works, 2000),
            (&names.events, 600),
        ] {
            assert!(pool.0.len() >= least, "{} of {least}", pool.0.len());
            assert_eq!(pool.0.iter().collect::<HashSet<_>>().len(), pool.0.len());
        }
    }
}
