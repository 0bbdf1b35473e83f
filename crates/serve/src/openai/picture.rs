//! Pictures of messages: PNG files in data URLs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use turnwise_model::vision::Image;

use super::ApiError;

/// Placeholder for a picture in a message's text, as the chat templates of Qwen2.5-VL render one.
pub(super) const PICTURE: &str = "<|vision_start|><|image_pad|><|vision_end|>";

/// Most pixels of all pictures of a request: 50 MB of RGB. A few kilobytes of PNG can have as many.
pub(super) const PIXELS: u64 = 1 << 24;

/// Decodes the picture of a data URL, and subtracts its pixels from `pixels`, the rest of the request's budget.
///
/// # Errors
/// Returns an error of the place (400): another URL, which is not fetched, another format than PNG, or a
/// picture that is damaged or too large.
pub(super) fn read(place: &str, url: &str, pixels: &mut u64) -> Result<Image, ApiError> {
    let fail = |reason: &str| Err(ApiError::field(place, format!("`{place}`: {reason}")));
    let Some(data) = url.strip_prefix("data:") else {
        return fail("only data URLs are read, and nothing is fetched; send data:image/png;base64,...");
    };
    let Some(("image/png", data)) = data.split_once(";base64,") else {
        return fail("only PNG pictures in base64 are read; send data:image/png;base64,...");
    };
    let bytes = match STANDARD.decode(data) {
        Ok(bytes) => bytes,
        Err(error) => return fail(&format!("the base64 of the picture is damaged: {error}")),
    };
    // Every PNG file has its width and height at these offsets. A picture that is too large is not decoded.
    let side = |at: usize| {
        bytes.get(at..at + 4).map_or(0, |side| side.iter().fold(0, |n, &b| n << 8 | u64::from(b)))
    };
    let Some(left) = pixels.checked_sub(side(16) * side(20)) else {
        return fail(&format!("the pictures of a request have more than {PIXELS} pixels; send smaller ones"));
    };
    *pixels = left;
    Image::decode(&bytes).or_else(|reason: String| fail(&reason))
}
