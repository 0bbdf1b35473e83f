use std::fmt::Write as _;

use turnwise_retrieval::Passage;

use super::facts::{Encyclopaedia, Entity, Relation};

pub(super) fn all(encyclopaedia: &Encyclopaedia) -> Vec<Passage> {
    let entities = encyclopaedia.entities();
    let passage = |(number, entity): (usize, &Entity)| Passage {
        id: number.to_string(),
        contents: format!("\"{}\"\n{}", encyclopaedia.name(*entity), text(encyclopaedia, *entity)),
    };
    entities.iter().enumerate().map(passage).collect()
}

fn text(all: &Encyclopaedia, entity: Entity) -> String {
    let name = all.name(entity);
    let fact =
        |relation: Relation| all.fact(entity, relation).map(|fact| all.write(&fact)).unwrap_or_default();
    match entity {
        Entity::Person(index) => {
            let person = &all.people[index];
            let (she, her) = if person.female { ("She", "Her") } else { ("He", "His") };
            let mut text = format!(
                "{name} was a {}. {she} was born in {} in {}.",
                Encyclopaedia::occupation(person),
                fact(Relation::Birthplace),
                person.born
            );
            if person.mother.is_some() {
                let _ = write!(text, " {her} mother was {}.", fact(Relation::Mother));
            }
            if person.teacher.is_some() {
                let _ = write!(text, " {her} teacher was {}.", fact(Relation::Teacher));
            }
            let _ = write!(text, " {she} died in {} in {}.", fact(Relation::Deathplace), person.died);
            text
        }
        Entity::Town(_) => format!(
            "{name} is a town in {}. It lies on the river {}. It was founded in {}. Its theatre was built by {}.",
            fact(Relation::Country),
            fact(Relation::River),
            fact(Relation::Founded),
            fact(Relation::Builder)
        ),
        Entity::Work(index) => format!(
            "{name} is a {} by {}. It was finished in {}. It is set in {}.",
            Encyclopaedia::kind_of_work(&all.works[index]),
            fact(Relation::Author),
            fact(Relation::Finished),
            fact(Relation::Setting)
        ),
        Entity::Event(_) => format!(
            "{name} was held in {} in {}. It was won by {}.",
            fact(Relation::Venue),
            fact(Relation::Held),
            fact(Relation::Winner)
        ),
    }
}
