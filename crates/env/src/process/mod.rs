//! Environments in an external program: `kind = "process"`.
//!
//! The program reads requests from stdin and writes responses to stdout, each a JSON object on its
//! own line. The program can play many episodes at once. Each request has an `id`, which its
//! response also contains; responses may arrive in any order. Error messages include the last lines
//! of the program's stderr.
//!
//! ```text
//! > {"id":0,"op":"hello","protocol":1,"client":"turnwise 0.1.0","settings":{"numbers":9}}
//! < {"id":0,"ok":{"protocol":1,"name":"guess","splits":["train","test"],"capabilities":{"step_many":true}}}
//! > {"id":1,"op":"tasks","split":"train","offset":0,"limit":1000}
//! < {"id":1,"ok":{"tasks":[{"id":"guess/7","goal":"find the number","metadata":{"secret":7}}],"next":null}}
//! > {"id":2,"op":"reset","episode":0,"task":{"id":"guess/7",..},"seed":1234}
//! < {"id":2,"ok":{"observation":{"text":"between 1 and 9","admissible":["1","2",..]}}}
//! > {"id":3,"op":"step","episode":0,"action":"7"}
//! < {"id":3,"ok":{"observation":"found","reward":1.0,"terminated":true,"success":true}}
//! > {"id":4,"op":"step","episode":5,"action":"7"}
//! < {"id":4,"error":{"kind":"fatal","message":"there is no episode 5"}}
//! > {"id":5,"op":"close","episode":0}
//! < {"id":5,"ok":{}}
//! > {"id":6,"op":"shutdown"}
//! ```
//!
//! `docs/worlds/process.md` specifies the protocol, with which `examples/python_environment` serves
//! any Gymnasium-style class.

pub mod error;
pub mod group;
mod listing;
pub mod program;
pub mod protocol;
mod strays;
mod watchdog;
pub mod world;

pub use world::{ProcessConfig, ProcessKind, ProcessSet};

#[cfg(test)]
mod saved_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tool_tests;
