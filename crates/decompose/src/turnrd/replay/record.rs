//! A replay record and its binary encoding.

/// A trajectory in the replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplayRecord {
    /// Round that sampled the trajectory.
    pub round: u32,
    /// Index within the round, for example `group * group_size + sample`.
    pub id: u64,
    /// Return `R`.
    pub ret: f64,
    /// Turn vectors, row-major `[turns, D]`.
    pub turns: Vec<f32>,
    /// Goal vector, `[D]`.
    pub goal: Vec<f32>,
    /// Progress after each turn, `[turns]`, or empty.
    pub progress: Vec<Option<f32>>,
    /// Goal as text; may be empty.
    pub goal_text: String,
    /// Actions as text, `[turns]`; may be empty.
    pub actions: Vec<String>,
}

impl ReplayRecord {
    /// Returns the width of turn vectors.
    pub fn input_dim(&self) -> usize {
        self.goal.len()
    }

    /// Returns the number of turns.
    pub fn turn_count(&self) -> usize {
        self.turns.len().checked_div(self.goal.len()).unwrap_or(0)
    }

    /// Encodes the record, with NaN for missing progress.
    ///
    /// ```text
    /// round u32 | id u64 | return f64 | turns u32 | D u32 | signals u32 | actions u32
    /// signals f32... | goal f32... | turns f32... | goal text | actions      text: length u32, UTF-8
    /// ```
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let (width, turns) = (self.goal.len(), self.turn_count());
        if turns == 0 || turns * width != self.turns.len() {
            let given = self.turns.len();
            return Err(format!("a record has {given} numbers for turns and a goal of width {width}"));
        }
        for (name, length) in [("progress", self.progress.len()), ("actions", self.actions.len())] {
            if length != 0 && length != turns {
                return Err(format!("a record has {turns} turns, but {length} entries of {name}"));
            }
        }
        let numbers = || self.goal.iter().chain(&self.turns).chain(self.progress.iter().flatten());
        if !(self.ret.is_finite() && numbers().all(|value| value.is_finite())) {
            return Err("a record holds a number that is not finite".into());
        }
        let mut bytes = Vec::with_capacity(64 + 4 * (self.turns.len() + width + turns));
        bytes.extend_from_slice(&self.round.to_le_bytes());
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.ret.to_le_bytes());
        let size = |value: usize| u32::try_from(value).map_err(|_| "a record is too large".to_owned());
        for value in [turns, width, self.progress.len(), self.actions.len()] {
            bytes.extend_from_slice(&size(value)?.to_le_bytes());
        }
        let signals = self.progress.iter().map(|value| value.unwrap_or(f32::NAN));
        for value in signals.chain(self.goal.iter().copied()).chain(self.turns.iter().copied()) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        for text in std::iter::once(&self.goal_text).chain(&self.actions) {
            bytes.extend_from_slice(&size(text.len())?.to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        Ok(bytes)
    }

    /// Returns the round and id; `None` if there are too few bytes.
    pub(super) fn key(payload: &[u8]) -> Option<(u32, u64)> {
        let mut bytes = Bytes(payload);
        Some((bytes.u32()?, bytes.u64()?))
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(payload);
        let (round, id, ret) = (bytes.u32()?, bytes.u64()?, f64::from_bits(bytes.u64()?));
        let mut size = || bytes.u32().map(|value| value as usize);
        let (turns, width, signals, actions) = (size()?, size()?, size()?, size()?);
        let progress = bytes.floats(signals)?.into_iter().map(|value| Some(value).filter(|x| !x.is_nan()));
        let progress = progress.collect();
        let goal = bytes.floats(width)?;
        let vectors = bytes.floats(turns.checked_mul(width)?)?;
        let goal_text = bytes.text()?;
        let actions = (0..actions).map(|_| bytes.text()).collect::<Option<_>>()?;
        let record = Self { round, id, ret, turns: vectors, goal, progress, goal_text, actions };
        bytes.0.is_empty().then_some(record)
    }
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn floats(&mut self, count: usize) -> Option<Vec<f32>> {
        let bytes = self.take(count.checked_mul(4)?)?;
        Some(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn text(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}
