//! Generates titles, descriptions, bullet points and instructions.

use turnwise_core::Rng;

use super::one;

fn capitalised(text: &str) -> String {
    let mut capital = true;
    text.chars()
        .map(|character| {
            let shown = if capital { character.to_ascii_uppercase() } else { character };
            capital = character == ' ' || character == '-';
            shown
        })
        .collect()
}

fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

pub(super) fn title(rng: &mut Rng, brand: &str, series: &str, noun: &str, attributes: &[String]) -> String {
    let first = capitalised(&attributes[0]);
    let second = capitalised(&attributes[1]);
    match rng.below(5) {
        0 => format!("{brand} {first} {noun}, {series}"),
        1 => format!("{brand} {series} {noun}, {first}, {second}"),
        2 => format!("{noun} by {brand} - {first} & {second} - {series}"),
        3 => format!("{brand} {noun} {series} ({first})"),
        _ => format!("{series} {first} {noun} with {second} Design, {brand}"),
    }
}

pub(super) fn description(rng: &mut Rng, brand: &str, noun: &str, attributes: &[String]) -> String {
    const ENDS: [&str; 8] = [
        "Questions are answered within a day.",
        "It ships in a plain carton without plastic.",
        "Colors on screens vary a little.",
        "Returns are free for thirty days.",
        "A small leaflet tells how to look after it.",
        "We test every fiftieth piece by hand.",
        "It makes a welcome present.",
        "Measured by hand, so allow for a small difference.",
    ];
    if rng.chance(0.05) {
        return String::new();
    }
    let noun = noun.to_lowercase();
    let named: Vec<String> = attributes.iter().filter(|_| rng.chance(0.5)).cloned().collect();
    let start = match rng.below(5) {
        0 => format!("{brand} has made its {noun} for everyday use."),
        1 => format!("Meet the new {noun} from {brand}."),
        2 => format!("Who looks for a {noun} to rely on need look no further."),
        3 => format!("The {noun} by {brand} has been improved again."),
        _ => format!("This is our most wanted {noun}."),
    };
    let middle = match (named.is_empty(), rng.below(4)) {
        (true, _) => String::new(),
        (_, 0) => format!(" It is known for: {}.", listed(&named)),
        (_, 1) => format!(" In short: {}.", listed(&named)),
        (_, 2) => format!(" Buyers praise it as {}.", listed(&named)),
        (_, _) => format!(" What counts most to us: {}.", listed(&named)),
    };
    format!("{start}{middle} {}", one(rng, &ENDS))
}

pub(super) fn bullet_points(rng: &mut Rng, attributes: &[(&str, &str)], noun: &str) -> Vec<String> {
    let mut lines: Vec<String> = attributes.iter().map(|(_, sentence)| (*sentence).to_owned()).collect();
    rng.shuffle(&mut lines);
    let noun = noun.to_lowercase();
    lines.push(match rng.below(4) {
        0 => format!("What is in the box: {noun}, leaflet, and a card with our thanks."),
        1 => format!("Two years of warranty on every {noun} we sell."),
        2 => format!("Designed by people who use this {noun} themselves."),
        _ => format!("Not happy with your {noun}? Write to us first."),
    });
    lines
}

/// Returns `Find me ATTRIBUTES QUERY with ATTRIBUTES`, as in the original.
pub(super) fn instruction(query: &str, attributes: &[String]) -> String {
    match attributes {
        [] => format!("Find me {query}"),
        [only] => format!("Find me {only} {query}"),
        [first, rest @ ..] => format!("Find me {first} {query} with {}", rest.join(", ")),
    }
}

pub(super) fn human(rng: &mut Rng, query: &str, attributes: &[String], options: &[(&str, &str)]) -> String {
    let wanted = listed(attributes);
    let text = match rng.below(16) {
        0 => format!("i am looking for {query} that are {wanted}"),
        1 => format!("i need {wanted} {query}"),
        2 => format!("find me some {query}, and they should be {wanted}"),
        3 => format!("can you show me {query} described as {wanted}?"),
        4 => format!("i want to buy {query}. {wanted} is a must"),
        5 => format!("looking for {wanted} {query}"),
        6 => format!("please help me choose {query} which are {wanted}"),
        7 => format!("my old {query} broke, get me new ones that are {wanted}"),
        8 => format!("i would like {wanted} {query} for a friend"),
        9 => format!("do you have {query}? i care about {wanted}"),
        10 => format!("search for {query} with the feature {wanted}"),
        11 => format!("we are out of {query}; order the {wanted} kind"),
        12 => format!("what i am after is {query}, {wanted} if possible"),
        13 => format!("get {wanted} {query} for my sister"),
        14 => format!("it is time for new {query}, this time {wanted}"),
        _ => format!("show me {query} and make sure of this: {wanted}"),
    };
    let mut options = options.iter();
    let Some((name, value)) = options.next() else { return text };
    let mut text = match rng.below(4) {
        0 => format!("{text}, in {name} {value}"),
        1 => format!("{text}, with {name}: {value}"),
        2 => format!("{text}, {name} {value}"),
        _ => format!("{text}, and i want the {name} {value}"),
    };
    for (name, value) in options {
        text = format!("{text}, and {name} {value}");
    }
    text
}
