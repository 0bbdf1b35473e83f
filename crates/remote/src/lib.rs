//! Parts of a run that are elsewhere: sampling on inference servers. The only crate with an async runtime, which no
//! public function shows: all of them block.
//!
//! | folder | subject |
//! |---|---|
//! | [`engines`] | rollouts on vLLM and SGLang servers |

pub mod engines;
