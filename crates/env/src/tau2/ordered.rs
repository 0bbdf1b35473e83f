//! Dictionaries that keep the order of entries in their file, because results of tau2-bench depend
//! on this order.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// Dictionary that keeps the insertion order but ignores it in comparisons.
#[derive(Clone, Debug)]
pub(super) struct Ordered<T> {
    rows: Vec<(String, T)>,
    places: HashMap<String, usize>,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), places: HashMap::new() }
    }
}

impl<T> Ordered<T> {
    pub(super) fn place(&self, key: &str) -> Option<usize> {
        self.places.get(key).copied()
    }

    pub(super) fn at(&self, place: usize) -> Option<(&str, &T)> {
        self.rows.get(place).map(|(key, value)| (key.as_str(), value))
    }

    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.rows.get(self.place(key)?).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut T> {
        let place = self.place(key)?;
        self.rows.get_mut(place).map(|(_, value)| value)
    }

    pub(super) fn insert(&mut self, key: String, value: T) {
        if let Some(place) = self.place(&key) {
            self.rows[place].1 = value;
        } else {
            self.places.insert(key.clone(), self.rows.len());
            self.rows.push((key, value));
        }
    }

    pub(super) fn sort_by_key<K: Ord>(&mut self, key: impl Fn(&str) -> K) {
        self.rows.sort_by_key(|(name, _)| key(name));
        self.places = self.rows.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.rows.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl<T: PartialEq> PartialEq for Ordered<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<T> FromIterator<(String, T)> for Ordered<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(pairs: I) -> Self {
        let mut map = Self::default();
        pairs.into_iter().for_each(|(key, value)| map.insert(key, value));
        map
    }
}

impl<T: Serialize> Serialize for Ordered<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.len()))?;
        self.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
    type Value = Ordered<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = Ordered::default();
        while let Some((key, value)) = entries.next_entry()? {
            map.insert(key, value);
        }
        Ok(map)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Reader(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_kept_and_equality_ignores_it() {
        let read = |text: &str| serde_json::from_str::<Ordered<i64>>(text).unwrap();
        let mut map = read(r#"{"z": 1, "a": 2}"#);
        assert_eq!(map, read(r#"{"a": 2, "z": 1}"#));
        assert_ne!(map, read(r#"{"a": 2, "z": 3}"#));
        map.insert("m".into(), 5);
        map.insert("z".into(), 7);
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"z":7,"a":2,"m":5}"#);
        map.sort_by_key(|name| name != "m");
        assert_eq!((map.place("m"), map.get("a")), (Some(0), Some(&2)));
        map.sort_by_key(|name| name == "m");
        assert_eq!((map.place("m"), map.at(2), map.get("x")), (Some(2), Some(("m", &5)), None));
    }
}
