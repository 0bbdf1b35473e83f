//! Rollouts on vLLM and SGLang servers.
