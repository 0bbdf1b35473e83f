//! Pictures of observations in prompts.
//!
//! An observation names a PNG file in `env.pictures` by its SHA-256. The picture's tokens come from
//! the model's picture table ([`turnwise_model::vision`]) and are only valid in this process, so
//! trajectory files have the model's image token instead.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use turnwise_core::{ImageHandle, Purpose, Seed, Tasks, Trajectory, hexadecimal};
use turnwise_model::vision::{FIRST_PICTURE_TOKEN, HeldPicture, Image, PictureTokens, VisionConfig};
use turnwise_text::TextError;

use crate::TrainError;
use crate::config::Config;
use crate::rollout::tasks::TaskOrder;
use crate::setup::World;

/// Converts pictures to tokens; each file is read once and its picture shared.
#[derive(Debug)]
pub struct PicturePrompts {
    vision: VisionConfig,
    folder: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    step: u64,
    pictures: HashMap<String, Kept>,
}

#[derive(Debug)]
struct Kept {
    tokens: PictureTokens,
    /// Keeps the picture in memory.
    _held: HeldPicture,
    used: u64,
}

/// Returns the height and width of the picture in the first observation of one task, if any.
pub(crate) fn drawn_size(config: &Config, world: &World) -> Option<[usize; 2]> {
    let folder = config.env.settings.get("pictures").and_then(toml::Value::as_str);
    let folder = folder.filter(|_| config.prompt.pictures)?;
    let order = TaskOrder::new(Tasks::of(world.task_set(), &config.env.split).ok()?, config.seed)?;
    let task = order.draw(0, 1).ok()?.into_iter().next()?;
    let seed = Seed::derive(config.seed, Purpose::Environment, &[]);
    let seen = world.task_set().environment().ok()?.reset(&task, seed).ok()?;
    let path = Path::new(folder).join(format!("{}.png", seen.image()?.sha256));
    Image::dimensions(&std::fs::read(path).ok()?).ok()
}

impl PicturePrompts {
    /// Returns the config's pictures for a model with this vision tower; `None` if
    /// `prompt.pictures` is not set.
    ///
    /// # Errors
    /// Names the invalid key if the model has no vision tower or the environment draws no pictures.
    pub fn new(config: &Config, vision: Option<&VisionConfig>) -> Result<Option<Self>, TrainError> {
        if !config.prompt.pictures {
            return Ok(None);
        }
        let fail = |origin: &str, reason: &str| {
            Err(TrainError::Config { origin: origin.into(), reason: reason.into() })
        };
        let Some(vision) = vision else {
            return fail(
                "prompt.pictures",
                "is true, and the policy reads no pictures; take a model with a vision tower (Qwen2.5-VL) as policy.model, a \
                 model from scratch with policy.scratch.vision, or leave it out",
            );
        };
        let Some(folder) = config.env.settings.get("pictures").and_then(toml::Value::as_str) else {
            return fail("env.pictures", "is missing; name a folder for the pictures that prompts show");
        };
        Ok(Some(Self { vision: vision.clone(), folder: folder.into(), known: Mutex::default() }))
    }

    /// Replaces a prompt's image token with the tokens of the observation's picture.
    ///
    /// # Errors
    /// Returns [`TextError::Picture`] if the picture is missing, damaged or not named by its hash,
    /// or if the prompt's text contains the image token's name.
    pub fn insert(&self, prompt: &[u32], image: Option<&ImageHandle>) -> Result<Vec<u32>, TextError> {
        let Some(image) = image else {
            let reason = "is true, and the world gave an observation without a picture; set env.pictures in a world that \
                          draws them (sokoban, ezpoints), or leave it out";
            return Err(TextError::Picture(reason.into()));
        };
        let tokens = self.tokens(image)?;
        let inserted = self.vision.insert(prompt, &[tokens]);
        inserted.map_err(|error| TextError::Picture(error.to_string()))
    }

    fn tokens(&self, image: &ImageHandle) -> Result<PictureTokens, TextError> {
        // A panicked thread left no partial entry.
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut known = lock();
            let step = known.step;
            if let Some(kept) = known.pictures.get_mut(&image.sha256) {
                kept.used = step;
                return Ok(kept.tokens);
            }
        }
        let (tokens, held) = match self.vision.pictures.named(&image.sha256) {
            Some(found) => found,
            None => self.read(image)?,
        };
        let mut known = lock();
        let used = known.step;
        known.pictures.insert(image.sha256.clone(), Kept { tokens, _held: held, used });
        Ok(tokens)
    }

    fn read(&self, image: &ImageHandle) -> Result<(PictureTokens, HeldPicture), TextError> {
        let path = self.folder.join(format!("{}.png", image.sha256));
        let fail = |reason: String| TextError::Picture(format!("{}: {reason}", path.display()));
        let bytes = std::fs::read(&path).map_err(|error| fail(error.to_string()))?;
        let found = hexadecimal(&Sha256::digest(&bytes));
        if found != image.sha256 {
            return Err(fail(format!(
                "its content has the SHA-256 {found}; delete the file, and it is drawn again"
            )));
        }
        let decoded = Image::decode(&bytes).map_err(fail)?;
        let added = self.vision.pictures.add_held(&decoded, &self.vision);
        let (tokens, held) = added.map_err(|error| fail(error.to_string()))?;
        self.vision.pictures.name(tokens.first, &image.sha256);
        Ok((tokens, held))
    }

    /// Returns the number of pictures in memory.
    pub fn kept(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).pictures.len()
    }

    /// Begins a training step; releases pictures last used more than `age` steps ago.
    pub fn begin_step(&self, age: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.step += 1;
        let step = known.step;
        known.pictures.retain(|_, kept| kept.used + age >= step);
    }

    /// Restores the picture tokens that [`PicturePrompts::hide`] replaced.
    ///
    /// # Errors
    /// Fails like [`PicturePrompts::insert`], or if the numbers of tokens differ.
    pub fn show(&self, prompt: &mut [u32], image: Option<&ImageHandle>) -> Result<(), TextError> {
        let hidden = |token: &u32| *token == self.vision.tokens.image;
        let places = prompt.iter().filter(|token| hidden(token)).count();
        if places == 0 {
            return Ok(());
        }
        let Some(image) = image else {
            return Err(TextError::Picture("has image tokens, and the turn has no picture".into()));
        };
        let ids = self.tokens(image)?.ids();
        if ids.len() != places {
            let reason = format!("has {places} image tokens for a picture of {}", ids.len());
            return Err(TextError::Picture(reason));
        }
        prompt.iter_mut().filter(|token| hidden(token)).zip(ids).for_each(|(token, id)| *token = id);
        Ok(())
    }

    /// Replaces picture tokens with the model's image token, for data that is kept longer than this
    /// process's pictures.
    pub fn hide(&self, trajectory: &mut Trajectory) {
        let image = self.vision.tokens.image;
        for token in trajectory.sequences.iter_mut().flat_map(|sequence| &mut sequence.tokens) {
            if *token >= FIRST_PICTURE_TOKEN {
                *token = image;
            }
        }
    }
}
