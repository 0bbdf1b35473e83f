use super::{CHOICE_CHUNK, Kernels, hold, line, long};
use crate::cuda::CudaError;
use crate::cuda::memory::Part;

impl Kernels {
    /// Samples a token per row of logits; writes four words per row (see `decode.cu`).
    pub(crate) fn choose(
        &self,
        (logits, stride): (Part<f32>, usize),
        vocabulary: usize,
        inverse_temperatures: Part<f32>,
        uniforms: Part<f64>,
        chunks: Part<f32>,
        choices: Part<f32>,
    ) -> Result<(), CudaError> {
        let (rows, count) = (inverse_temperatures.len, vocabulary.div_ceil(CHOICE_CHUNK));
        hold(chunks, rows * count, 4);
        hold(choices, rows, 4);
        hold(uniforms, rows, 1);
        let arguments = arguments![logits, long(stride), vocabulary, inverse_temperatures, chunks];
        self.launch("choice_chunks", [count, rows, 1], line(256), 0, arguments)?;
        let arguments = arguments![
            logits,
            long(stride),
            vocabulary,
            inverse_temperatures,
            uniforms,
            chunks,
            count,
            choices
        ];
        self.rows("choose", rows, 256, arguments)
    }

    /// Samples again, after [`Kernels::choose`], for rows with top-k or top-p; a top-k of 0 keeps
    /// all tokens.
    pub(crate) fn choose_truncated(
        &self,
        (logits, stride): (Part<f32>, usize),
        vocabulary: usize,
        inverse_temperatures: Part<f32>,
        uniforms: Part<f64>,
        (top_ks, top_ps): (Part<i32>, Part<f32>),
        choices: Part<f32>,
    ) -> Result<(), CudaError> {
        let rows = inverse_temperatures.len;
        hold(choices, rows, 4);
        hold(uniforms, rows, 1);
        hold(top_ks, rows, 1);
        hold(top_ps, rows, 1);
        let arguments = arguments![
            logits,
            long(stride),
            vocabulary,
            inverse_temperatures,
            uniforms,
            top_ks,
            top_ps,
            choices
        ];
        self.rows("choose_truncated", rows, 256, arguments)
    }
}
