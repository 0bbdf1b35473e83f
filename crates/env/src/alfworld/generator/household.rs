//! Rooms, receptacles and objects, read from `household.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use turnwise_core::EnvError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Openable {
    Never,
    /// Most receptacles of the type can be opened, but as in the original, some drawers and
    /// cabinets cannot.
    Mostly,
    Always,
}

pub(super) mod ability {
    pub(in super::super) const CLEANABLE: u8 = 1;
    pub(in super::super) const HEATABLE: u8 = 1 << 1;
    pub(in super::super) const COOLABLE: u8 = 1 << 2;
    pub(in super::super) const SLICEABLE: u8 = 1 << 3;
    pub(in super::super) const VESSEL: u8 = 1 << 4;
    /// Marks the desk lamp, which cannot be carried.
    pub(in super::super) const LAMP: u8 = 1 << 5;
}

#[derive(Debug)]
pub(super) struct ObjectKind {
    pub(super) name: &'static str,
    pub(super) abilities: u8,
}

#[derive(Debug)]
pub(super) struct ReceptacleKind {
    pub(super) name: &'static str,
    pub(super) openable: Openable,
    pub(super) fits: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Furniture {
    pub(super) kind: usize,
    pub(super) mean: f64,
    pub(super) max: usize,
    pub(super) essential: bool,
    pub(super) lamp: bool,
}

#[derive(Debug)]
pub(super) struct Thing {
    pub(super) kind: usize,
    pub(super) share: f64,
    pub(super) places: Vec<(usize, f64)>,
}

#[derive(Debug)]
pub(super) struct Room {
    pub(super) furniture: Vec<Furniture>,
    pub(super) things: Vec<Thing>,
    pub(super) lamp: Vec<(usize, f64)>,
}

#[derive(Debug, Default)]
pub(super) struct Household {
    pub(super) objects: Vec<ObjectKind>,
    pub(super) receptacles: Vec<ReceptacleKind>,
    pub(super) rooms: Vec<Room>,
    pub(super) lamp: usize,
}

static HOUSEHOLD: LazyLock<Result<Household, String>> =
    LazyLock::new(|| Household::read(include_str!("household.txt")));

impl Household {
    pub(super) fn embedded() -> Result<&'static Self, EnvError> {
        HOUSEHOLD.as_ref().map_err(|reason| EnvError::Other(format!("household.txt: {reason}")))
    }

    fn read(text: &'static str) -> Result<Self, String> {
        let mut reader = Reader::default();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.split_first() {
                None => {}
                Some((head, _)) if head.starts_with('#') => {}
                Some((head, rest)) => {
                    reader.line(head, rest).map_err(|reason| format!("line {}: {reason}", number + 1))?;
                }
            }
        }
        let mut house = reader.house;
        house.lamp = reader.objects.get("DeskLamp").copied().ok_or("no room has a DeskLamp")?;
        house.objects[house.lamp].abilities |= ability::LAMP;
        Ok(house)
    }

    pub(super) fn fits(&self, receptacle: usize, object: usize) -> bool {
        self.receptacles[receptacle].fits.contains(&object)
    }

    pub(super) fn receptacle(&self, name: &str) -> Option<usize> {
        self.receptacles.iter().position(|kind| kind.name == name)
    }
}

#[derive(Default)]
struct Reader {
    house: Household,
    objects: BTreeMap<&'static str, usize>,
    receptacles: BTreeMap<&'static str, usize>,
}

impl Reader {
    fn object(&mut self, name: &'static str) -> usize {
        let kinds = &mut self.house.objects;
        *self.objects.entry(name).or_insert_with(|| {
            kinds.push(ObjectKind { name, abilities: 0 });
            kinds.len() - 1
        })
    }

    fn receptacle(&mut self, name: &'static str) -> usize {
        let kinds = &mut self.house.receptacles;
        *self.receptacles.entry(name).or_insert_with(|| {
            kinds.push(ReceptacleKind { name, openable: Openable::Never, fits: Vec::new() });
            kinds.len() - 1
        })
    }

    fn shares(&mut self, words: &[&'static str]) -> Result<Vec<(usize, f64)>, String> {
        let pair = |pair: &[&'static str]| match pair {
            [name, share] => Ok((self.receptacle(name), number(share)?)),
            _ => Err("a place without its share".to_owned()),
        };
        words.chunks(2).map(pair).collect()
    }

    fn line(&mut self, head: &str, words: &[&'static str]) -> Result<(), String> {
        match (head, words) {
            ("room", [_]) => {
                self.house.rooms.push(Room { furniture: Vec::new(), things: Vec::new(), lamp: Vec::new() });
            }
            ("receptacle", [name, mean, max, marks @ ..]) => {
                let furniture = Furniture {
                    kind: self.receptacle(name),
                    mean: number(mean)?,
                    max: number(max)? as usize,
                    essential: marks.contains(&"essential"),
                    lamp: marks.contains(&"lamp"),
                };
                self.room()?.furniture.push(furniture);
            }
            ("object", [name, share, places @ ..]) => {
                let thing =
                    Thing { kind: self.object(name), share: number(share)?, places: self.shares(places)? };
                self.room()?.things.push(thing);
            }
            ("lamp", places) => {
                self.object("DeskLamp");
                let places = self.shares(places)?;
                self.room()?.lamp = places;
            }
            ("fits", [receptacle, objects @ ..]) => {
                let fits = objects.iter().map(|name| self.object(name)).collect();
                let receptacle = self.receptacle(receptacle);
                self.house.receptacles[receptacle].fits = fits;
            }
            ("openable", [how, receptacles @ ..]) => {
                let openable = if *how == "always" { Openable::Always } else { Openable::Mostly };
                for name in receptacles {
                    let receptacle = self.receptacle(name);
                    self.house.receptacles[receptacle].openable = openable;
                }
            }
            (ability, kinds) => {
                let bit = match ability {
                    "cleanable" => ability::CLEANABLE,
                    "heatable" => ability::HEATABLE,
                    "coolable" => ability::COOLABLE,
                    "sliceable" => ability::SLICEABLE,
                    "vessel" => ability::VESSEL,
                    _ => return Err(format!("`{ability}` is not understood")),
                };
                for name in kinds {
                    let kind = self.object(name);
                    self.house.objects[kind].abilities |= bit;
                }
            }
        }
        Ok(())
    }

    fn room(&mut self) -> Result<&mut Room, String> {
        self.house.rooms.last_mut().ok_or_else(|| "a `room` line must come first".to_owned())
    }
}

fn number(word: &str) -> Result<f64, String> {
    word.parse().map_err(|_| format!("`{word}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_house_is_whole() {
        let house = Household::embedded().unwrap();
        assert_eq!(house.rooms.len(), 4);
        assert!(house.objects.len() > 50 && house.receptacles.len() > 25);
        for room in &house.rooms {
            assert!(room.furniture.iter().any(|furniture| furniture.essential));
            for (place, _) in room.things.iter().flat_map(|thing| &thing.places).chain(&room.lamp) {
                let name = house.receptacles[*place].name;
                assert!(room.furniture.iter().any(|furniture| furniture.kind == *place), "{name}");
            }
        }
        let (fridge, egg) =
            (house.receptacle("Fridge").unwrap(), house.objects.iter().position(|o| o.name == "Egg"));
        assert!(house.fits(fridge, egg.unwrap()));
        assert!(!house.fits(fridge, house.lamp));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert!(Household::read("receptacle Bed 1 1").unwrap_err().contains("line 1: a `room`"));
        assert!(Household::read("room a\nobject Egg much").unwrap_err().contains("line 2: `much`"));
        assert!(Household::read("room a\nobject Egg 1 Bed").unwrap_err().contains("without its share"));
        assert!(Household::read("edible Egg").unwrap_err().contains("`edible`"));
        assert!(Household::read("room a").unwrap_err().contains("DeskLamp"));
    }
}
