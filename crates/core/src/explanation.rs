//! Effect of each stage of credit assignment on a turn's advantage:
//! `{"stage": "aem", "advantage": 0.5, "facts": {"entropy": 1.2, "alpha": 0.7}}`. `null` means NaN
//! or infinity.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Named numbers that explain an advantage, in reading order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts(pub Vec<(Cow<'static, str>, f64)>);

impl Facts {
    /// Returns a number by name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Facts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Facts;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map from names to numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Facts, A::Error> {
                let mut facts = Facts::default();
                while let Some((name, value)) = map.next_entry::<String, Option<f64>>()? {
                    facts.0.push((name.into(), value.unwrap_or(f64::NAN)));
                }
                Ok(facts)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Effect of one credit stage on one turn's advantage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageRecord {
    /// Stage name in configs.
    pub stage: Cow<'static, str>,
    /// Advantage after the stage.
    pub advantage: f64,
    /// Numbers that explain this advantage.
    pub facts: Facts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_what_a_reader_would_write_and_reads_back() {
        let facts = Facts(vec![("entropy".into(), 1.25), ("alpha".into(), f64::NAN)]);
        let explanation = StageRecord { stage: "aem".into(), advantage: 1.0 / 3.0, facts };
        let text = serde_json::to_string(&explanation).unwrap();
        assert_eq!(
            text,
            r#"{"stage":"aem","advantage":0.3333333333333333,"facts":{"entropy":1.25,"alpha":null}}"#
        );
        let read: StageRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read.facts.get("entropy"), Some(1.25));
        assert!(read.facts.get("alpha").unwrap().is_nan());
        assert_eq!((read.stage, read.advantage), ("aem".into(), 1.0 / 3.0));
        assert!(serde_json::from_str::<StageRecord>(r#"{"stage":"aem","facts":{}}"#).is_err());
    }
}
