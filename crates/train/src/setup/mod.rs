//! Creates the parts that a config describes: environment, model, prompts.

mod prompts;
mod reasoning;
mod sampling;
mod untrained;
mod world;

pub(crate) use prompts::engine_reasoning;
pub use prompts::{chat, parser, template};
pub use reasoning::reasoning;
pub(crate) use reasoning::samples_here;
pub(crate) use sampling::{sampling, sampling_of_run};
pub(crate) use untrained::untrained_tags;
pub use world::World;
