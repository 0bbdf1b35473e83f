//! Start state of a PDDL problem, grouped by predicate.

use std::collections::HashMap;

use super::game::{Condition, trait_bit};
use super::pddl::Reader;

const OBJECT_TRAITS: [(&str, u16); 7] = [
    ("pickupable", trait_bit::PICKUPABLE),
    ("cleanable", trait_bit::CLEANABLE),
    ("heatable", trait_bit::HEATABLE),
    ("coolable", trait_bit::COOLABLE),
    ("sliceable", trait_bit::SLICEABLE),
    ("toggleable", trait_bit::TOGGLEABLE),
    ("isreceptacleobject", trait_bit::VESSEL),
];

const IDLE: [&str; 10] = [
    "moveable",
    "ison",
    "isreceptacleobjectfull",
    "wasinreceptacle",
    "checked",
    "examined",
    "full",
    "=",
    "distance",
    "total-cost",
];

/// Facts by predicate. Case is ignored, as in the original's planner.
#[derive(Default)]
pub(super) struct Facts<'a> {
    exact: HashMap<&'a str, u32>,
    lower: HashMap<String, u32>,
    pub(super) words: Vec<String>,
    pub(super) receptacle_type: Vec<(u32, u32)>,
    pub(super) object_type: Vec<(u32, u32)>,
    pub(super) can_contain: Vec<(u32, u32)>,
    pub(super) receptacle_at: Vec<(u32, u32)>,
    pub(super) object_at: Vec<(u32, u32)>,
    pub(super) in_receptacle: Vec<(u32, u32)>,
    pub(super) in_object: Vec<(u32, u32)>,
    pub(super) agent_at: Vec<u32>,
    pub(super) openable: Vec<u32>,
    pub(super) opened: Vec<u32>,
    pub(super) traits: Vec<(u32, u16)>,
    pub(super) conditions: Vec<(u32, Condition)>,
}

impl<'a> Facts<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, String> {
        let mut facts = Self::default();
        let mut fact = Vec::with_capacity(4);
        let mut head = String::new();
        while reader.fact(&mut fact)? {
            let Some((&name, arguments)) = fact.split_first() else {
                return Err(reader.error("an empty fact `()`"));
            };
            head.clear();
            head.extend(name.chars().map(|c| c.to_ascii_lowercase()));
            let ids: Vec<u32> = arguments.iter().map(|word| facts.word(word)).collect();
            facts.add(&head, &ids).map_err(|what| reader.error(&what))?;
        }
        Ok(facts)
    }

    fn word(&mut self, word: &'a str) -> u32 {
        if let Some(&id) = self.exact.get(word) {
            return id;
        }
        let next = self.words.len() as u32;
        let lower = word.to_lowercase();
        let id = *self.lower.entry(lower).or_insert_with_key(|lower| {
            self.words.push(lower.clone());
            next
        });
        self.exact.insert(word, id);
        id
    }

    fn add(&mut self, head: &str, ids: &[u32]) -> Result<(), String> {
        match (head, ids) {
            ("receptacletype", &[a, b]) => self.receptacle_type.push((a, b)),
            ("objecttype", &[a, b]) => self.object_type.push((a, b)),
            ("cancontain", &[a, b]) => self.can_contain.push((a, b)),
            ("receptacleatlocation", &[a, b]) => self.receptacle_at.push((a, b)),
            ("objectatlocation", &[a, b]) => self.object_at.push((a, b)),
            ("inreceptacle", &[a, b]) => self.in_receptacle.push((a, b)),
            ("inreceptacleobject", &[a, b]) => self.in_object.push((a, b)),
            ("atlocation", &[_, place]) => self.agent_at.push(place),
            ("openable", &[a]) => self.openable.push(a),
            ("opened", &[a]) => self.opened.push(a),
            ("isclean", &[a]) => self.conditions.push((a, Condition::Clean)),
            ("ishot", &[a]) => self.conditions.push((a, Condition::Hot)),
            ("iscool", &[a]) => self.conditions.push((a, Condition::Cool)),
            (head, ids) => {
                if let Some(&(_, bit)) = OBJECT_TRAITS.iter().find(|(name, _)| *name == head)
                    && let &[a] = ids
                {
                    self.traits.push((a, bit));
                } else if !IDLE.contains(&head) {
                    return Err(format!(
                        "`({head} ...)` with {} arguments is no start fact of an ALFWorld game",
                        ids.len()
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn text(&self, id: u32) -> &str {
        &self.words[id as usize]
    }

    /// Sorts ids by their texts, as in the original's lists, and removes duplicates.
    pub(super) fn sorted(&self, ids: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable_by(|&a, &b| self.text(a).cmp(self.text(b)));
        ids.dedup();
        ids
    }

    pub(super) fn twice(&self, id: u32, what: &str) -> String {
        format!("`{}` has more than one {what}", self.text(id))
    }
}
