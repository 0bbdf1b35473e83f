//! Parts that a config stands for, opened.
//!
//! | file | subject |
//! |---|---|
//! | `world` | its world: tasks, environments, the expert's episodes |
//! | `prompts` | its prompt template, parser and chat format |

mod prompts;
mod world;

pub use prompts::{chat, parser, template};
pub use world::World;
