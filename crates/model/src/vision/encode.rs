//! Features of a batch's distinct images, and the tower's gradients.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use rayon::prelude::*;

use super::{FIRST_PICTURE_TOKEN, Pictures, Prepared, VisionConfig};
use crate::vision::tower::{Tower, Trace};
use crate::{Parameters, Real};

/// Maximum bytes of stored activations (1 GiB); those of further images are recomputed.
pub(crate) const MOST_KEPT: usize = 1 << 30;

/// Maximum feature elements cached by engines with the same weights: 1 GiB in f32.
pub(crate) const MOST_FEATURES: usize = 1 << 28;

#[derive(Debug)]
pub(crate) struct Encoded<T> {
    /// First row of each image, keyed by the image's first token id.
    starts: BTreeMap<u32, usize>,
    /// Images in row order, which is the order of first appearance.
    pictures: Vec<Arc<Prepared>>,
    traces: Vec<Option<Trace<T>>>,
    pub(crate) table: Pictures,
    width: usize,
    /// `[tokens of all pictures, width]`.
    pub(crate) features: Vec<T>,
}

impl<T: Real> Encoded<T> {
    /// Returns the row of an image token.
    ///
    /// # Panics
    /// Panics if the token belongs to none of the encoded images; the learner checks the tokens
    /// beforehand.
    pub(crate) fn row(&self, token: u32) -> usize {
        let found = self.starts.range(..=token).next_back();
        let (&first, &start) = found.unwrap_or_else(|| unreachable!("pictures are encoded before a pass"));
        start + (token - first) as usize
    }
}

/// Replaces image ids by row numbers. Ids differ between processes, so a resumed run would sort
/// sequences with ids differently.
pub(crate) fn numbered_by_rows<'a, T: Real>(
    pictures: Option<&Encoded<T>>,
    tokens: &'a [u32],
) -> Cow<'a, [u32]> {
    match pictures {
        Some(pictures) if tokens.iter().any(|&token| token >= FIRST_PICTURE_TOKEN) => {
            let number = |&token: &u32| match token {
                FIRST_PICTURE_TOKEN.. => FIRST_PICTURE_TOKEN + pictures.row(token) as u32,
                text => text,
            };
            tokens.iter().map(number).collect()
        }
        _ => Cow::Borrowed(tokens),
    }
}

fn tower<T: Real>(parameters: &Parameters<T>) -> Option<Tower<'_, T>> {
    let config = parameters.config.vision.as_ref()?;
    let data = &parameters.data[parameters.layout.vision.clone()?];
    Some(Tower::new(config, parameters.config.hidden_size, data))
}

pub(crate) fn encode_one(config: &VisionConfig, width: usize, data: &[f32], first: u32) -> Option<Vec<f32>> {
    let picture = config.pictures.get(first)?;
    Some(Tower::new(config, width, data).forward(&picture, false).features)
}

/// Encodes each distinct image once, in order of appearance, so results do not depend on token ids.
/// With `keep`, stores activations for [`encode_backward`].
pub(crate) fn encode<T: Real>(
    parameters: &Parameters<T>,
    table: &Pictures,
    keep: bool,
    tokens: impl Iterator<Item = u32>,
) -> Option<Encoded<T>> {
    let tower = tower(parameters)?;
    let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut starts, mut pictures, mut rows) = (BTreeMap::new(), Vec::new(), 0);
    for token in tokens.filter(|&token| token >= FIRST_PICTURE_TOKEN) {
        let known = ends.range(..=token).next_back().is_some_and(|(_, &end)| token < end);
        if !known
            && let Some(ids) = table.of_token(token).map(|picture| picture.ids())
            && let Some(picture) = table.get(ids.start)
        {
            ends.insert(ids.start, ids.end);
            starts.insert(ids.start, rows);
            rows += picture.tokens();
            pictures.push(picture);
        }
    }
    if pictures.is_empty() {
        return None;
    }
    let mut bytes = 0;
    let jobs: Vec<(&Prepared, bool)> = pictures
        .iter()
        .map(|picture| {
            bytes += tower.kept(picture) * size_of::<T>();
            (&**picture, keep && bytes <= MOST_KEPT)
        })
        .collect();
    let mut traces: Vec<Trace<T>> =
        jobs.into_par_iter().map(|(picture, keep)| tower.forward(picture, keep)).collect();
    let features = traces.iter_mut().flat_map(|trace| mem::take(&mut trace.features)).collect();
    let traces = traces.into_iter().map(|trace| trace.is_kept().then_some(trace)).collect();
    Some(Encoded { starts, pictures, traces, table: table.clone(), width: tower.width, features })
}

/// Returns the large jobs, and the other jobs distributed over `lanes`. The result depends only on
/// the jobs and `lanes`.
fn deal<J>(jobs: Vec<J>, large: impl Fn(&J) -> bool, lanes: usize) -> (Vec<J>, Vec<Vec<J>>) {
    let (alone, small): (Vec<J>, Vec<J>) = jobs.into_iter().partition(large);
    let each = small.len().div_ceil(lanes).max(1);
    let mut small = small.into_iter();
    let parts = std::iter::from_fn(|| Some(small.by_ref().take(each).collect::<Vec<J>>()));
    (alone, parts.take_while(|part| !part.is_empty()).collect())
}

/// Adds the gradient of the tower's weights to `gradient`. Small images are distributed over
/// `lanes`, whose gradients are added in order; products of large images are split over threads.
pub(crate) fn encode_backward<T: Real>(
    parameters: &Parameters<T>,
    encoded: Encoded<T>,
    d_features: &[T],
    lanes: usize,
    gradient: &mut [T],
) {
    let (Some(tower), Some(range)) = (tower(parameters), parameters.layout.vision.clone()) else { return };
    let Encoded { pictures, traces, width, .. } = encoded;
    let mut row = 0;
    let jobs: Vec<_> = pictures
        .iter()
        .zip(traces)
        .map(|(picture, trace)| {
            let d_features = &d_features[row * width..][..picture.tokens() * width];
            row += picture.tokens();
            (&**picture, trace, d_features)
        })
        .collect();
    let (large, small) = deal(jobs, |(picture, ..)| tower.splits(picture), lanes);
    for (picture, trace, d_features) in large {
        let trace = trace.unwrap_or_else(|| tower.forward(picture, true));
        tower.backward(picture, trace, d_features, &mut gradient[range.clone()]);
    }
    let parts: Vec<Vec<T>> = small
        .into_par_iter()
        .map(|jobs| {
            let mut gradient = vec![T::ZERO; range.len()];
            for (picture, trace, d_features) in jobs {
                let trace = trace.unwrap_or_else(|| tower.forward(picture, true));
                tower.backward(picture, trace, d_features, &mut gradient);
            }
            gradient
        })
        .collect();
    for part in parts {
        crate::layers::add_assign(&mut gradient[range.clone()], &part);
    }
}

#[cfg(test)]
mod tests {
    use super::deal;

    #[test]
    fn small_pictures_are_dealt_to_all_lanes_beside_a_large_one() {
        let large = |&size: &usize| size > 100;
        let (alone, parts) = deal(vec![1, 500, 2, 3, 700, 4, 5], large, 2);
        assert_eq!((alone, parts), (vec![500, 700], vec![vec![1, 2, 3], vec![4, 5]]));
        assert_eq!(deal(vec![500], large, 2), (vec![500], Vec::new()));
        assert_eq!(deal(vec![1, 2], large, 8), (Vec::new(), vec![vec![1], vec![2]]));
    }
}
