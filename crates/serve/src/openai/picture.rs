//! Images in messages: PNG and JPEG data URLs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use turnwise_model::vision::Image;

use super::ApiError;

/// Image placeholder of Qwen2-VL and Qwen2.5-VL.
pub(super) const PICTURE: &str = "<|vision_start|><|image_pad|><|vision_end|>";

/// Maximum pixels of a request: 50 MB as RGB. A PNG of a few kilobytes can decode to this size.
pub(super) const PIXELS: u64 = 1 << 24;

/// Decodes a data URL's image and subtracts its number of pixels from `pixels`, the rest of the
/// request's budget. The format is detected from the content, not from the URL's media type.
///
/// # Errors
/// Returns an error (400) for the field `place` if the URL is not a data URL (other URLs are never
/// fetched), or if the image is neither PNG nor JPEG, damaged or too large.
pub(super) fn read(place: &str, url: &str, pixels: &mut u64) -> Result<Image, ApiError> {
    let error = |reason: &str| ApiError::field(place, format!("`{place}`: {reason}"));
    let Some(data) = url.strip_prefix("data:") else {
        let reason = "only data URLs are read, and nothing is fetched; send data:image/png;base64,...";
        return Err(error(reason));
    };
    let Some(("image/png" | "image/jpeg" | "image/jpg", data)) = data.split_once(";base64,") else {
        let reason = "only PNG and JPEG pictures in base64 are read; send data:image/png;base64,...";
        return Err(error(reason));
    };
    let damaged = |cause| error(&format!("the base64 of the picture is damaged: {cause}"));
    let bytes = STANDARD.decode(data).map_err(damaged)?;
    // An image that is too large is not decoded.
    let [height, width] = Image::dimensions(&bytes).map_err(|reason| error(&reason))?;
    let Some(left) = pixels.checked_sub((height * width) as u64) else {
        let reason = format!("the pictures of a request have more than {PIXELS} pixels; send smaller ones");
        return Err(error(&reason));
    };
    *pixels = left;
    Image::decode(&bytes).map_err(|reason| error(&reason))
}
