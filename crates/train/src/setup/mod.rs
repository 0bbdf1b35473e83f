//! Opening the parts of a config: environment, model, prompts.
//!
//! | file | subject |
//! |---|---|
//! | `world` | its world: tasks, environments, the expert's episodes |
//! | `prompts` | its prompt template, parser and chat format |
//! | `reasoning` | the reasoning in which stop strings end no response |
//! | `sampling` | the sampling that its saved folders name |

mod prompts;
mod reasoning;
mod sampling;
mod world;

pub(crate) use prompts::engine_reasoning;
pub use prompts::{chat, parser, template};
pub use reasoning::reasoning;
pub(crate) use reasoning::samples_here;
pub(crate) use sampling::{sampling, sampling_of_run};
pub use world::World;
