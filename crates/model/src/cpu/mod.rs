pub(crate) mod decode;
pub(crate) mod decoder;
mod decoder_layer;
pub(crate) mod head;
pub(crate) mod optimizer;
mod passes;
mod projection;
