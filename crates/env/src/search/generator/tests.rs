use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::answer::normalize;
use super::facts::{Entity, Fact, Relation};
use super::*;

fn small(seed: u64) -> SearchGenerator {
    SearchGenerator {
        seed,
        people: 600,
        towns: 60,
        works: 150,
        events: 80,
        train: 800,
        valid: 40,
        test: 40,
        ..SearchGenerator::default()
    }
}

#[test]
fn the_default_has_more_than_five_thousand_passages_and_every_kind_of_question() {
    let made = generate(&SearchGenerator::default()).unwrap();
    assert_eq!(made.passages.len(), 5300);
    let titles: HashSet<&str> = made.passages.iter().map(Passage::title).collect();
    assert_eq!(titles.len(), made.passages.len(), "every passage has a title of its own");
    let sizes: Vec<usize> = made.splits.iter().map(Vec::len).collect();
    assert_eq!(sizes, [20_000, 500, 500]);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for question in &made.splits[2] {
        *kinds.entry(&question.dataset).or_default() += 1;
    }
    assert_eq!(kinds.values().copied().collect::<Vec<_>>(), [125; 4], "{kinds:?}");
    let yes_or_no: Vec<&str> = made.splits[0]
        .iter()
        .map(|question| question.golden[0].as_str())
        .filter(|answer| matches!(*answer, "yes" | "no"))
        .collect();
    let yes = yes_or_no.iter().filter(|answer| **answer == "yes").count();
    assert!(yes_or_no.len() > 300 && (0.35..0.65).contains(&(yes as f64 / yes_or_no.len() as f64)), "{yes}");
}

#[test]
fn every_answer_stands_in_the_last_passage_that_is_looked_up() {
    let made = generate(&small(3)).unwrap();
    let passages: HashMap<&str, &str> =
        made.passages.iter().map(|passage| (passage.title().trim_matches('"'), passage.text())).collect();
    for question in made.splits.iter().flatten() {
        let texts: Vec<&str> = question.plan.iter().map(|search| passages[search.query.as_str()]).collect();
        let answer = &question.golden[0];
        if question.dataset == "comparison" {
            assert_eq!(texts.len(), 2);
            let chosen = question.plan.iter().any(|search| search.query == *answer);
            assert!(chosen || matches!(answer.as_str(), "yes" | "no"), "{question:?}");
            continue;
        }
        assert!(texts[texts.len() - 1].contains(answer), "{question:?}");
        assert!(question.text.contains(&question.plan[0].query), "{question:?}");
        for (text, next) in texts.iter().zip(&question.plan[1..]) {
            assert!(text.contains(&next.query), "{question:?}");
        }
        assert!(!question.text.contains(&question.plan.last().unwrap().query) || question.plan.len() == 1);
        assert_ne!(normalize(&question.plan[0].early_answer), normalize(answer), "{question:?}");
    }
}

#[test]
fn no_split_asks_about_a_name_of_another_whatever_the_seed() {
    let names = |seed: u64, split: usize| -> HashSet<String> {
        let made = generate(&small(seed)).unwrap();
        let first = |question: &Question| match question.dataset.as_str() {
            "comparison" => question.plan.iter().map(|search| search.query.clone()).collect(),
            _ => vec![question.plan[0].query.clone()],
        };
        made.splits[split].iter().flat_map(first).collect()
    };
    for (left, right) in [(0, 1), (0, 2), (1, 2)] {
        assert!(names(0, left).is_disjoint(&names(1, right)), "{left} {right}");
    }
    assert!(!names(0, 0).is_disjoint(&names(0, 0)));
}

#[test]
fn facts_fit_together() {
    let config = small(5);
    let all = Encyclopaedia::draw(&config, &mut Seed::derive(config.seed, Purpose::World, &[0]).rng());
    let (mut mothers, mut teachers) = (0, 0);
    for person in &all.people {
        assert!(person.died >= person.born + 40);
        if let Some(mother) = person.mother.map(|index| &all.people[index]) {
            mothers += 1;
            let age = person.born - mother.born;
            assert!(mother.female && (18..=40).contains(&age) && mother.died >= person.born);
        }
        if let Some(teacher) = person.teacher.map(|index| &all.people[index]) {
            teachers += 1;
            assert!(teacher.occupation == person.occupation && teacher.born + 12 <= person.born);
            assert!(teacher.died >= person.born + 12);
        }
    }
    assert!(mothers > 400 && teachers > 300, "{mothers} {teachers}");
    for work in &all.works {
        let author = &all.people[work.author];
        assert!((author.born + 20..=author.died).contains(&work.finished));
    }
    for town in &all.towns {
        assert_eq!(Encyclopaedia::occupation(&all.people[town.builder]), "builder");
    }
    assert_eq!(all.fact(Entity::Town(0), Relation::Mother), None);
    assert!(matches!(all.fact(Entity::Person(0), Relation::Born), Some(Fact::Text(_))));
}

#[test]
fn the_same_seed_makes_the_same_and_another_another() {
    let texts = |seed| generate(&small(seed)).unwrap().passages;
    assert_eq!(texts(1), texts(1));
    assert_ne!(texts(1), texts(2));
}

#[test]
fn a_small_encyclopaedia_says_when_its_questions_run_out() {
    let config = SearchGenerator { valid: 50_000, kinds: vec![QuestionKind::SingleHop], ..small(0) };
    let error = generate(&config).unwrap_err().to_string();
    assert!(error.contains("generator.valid = 50000") && error.contains("no more single-hop"), "{error}");
}
