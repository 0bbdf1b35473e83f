//! Parts of a run that are elsewhere: sampling on inference servers, training on services. The only crate with an async runtime, which no
//! public function shows: all of them block.
//!
//! | folder | subject |
//! |---|---|
//! | [`engines`] | rollouts on vLLM and SGLang servers |
//! | [`tinker`] | training and sampling on services with the Tinker interface |

pub mod engines;
pub mod tinker;
