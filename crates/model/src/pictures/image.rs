//! Decodes PNG and JPEG files to RGB, with size limits.

use std::io::Cursor;
use std::path::Path;

use png::{ColorType, Decoder, Limits, Transformations};
use turnwise_files::catch_panic;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::ModelError;

const MOST_SIDE: usize = 8192;

/// Maximum pixels: 100 MB of RGB.
const MOST_PIXELS: usize = 1 << 25;

const MOST_BYTES: u64 = 1 << 27;

/// Maximum pixels over all scans of a progressive JPEG; each scan takes a pass over the image.
const MOST_SCANNED: usize = 1 << 30;

/// An RGB image, eight bits per channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// `[height, width, 3]`.
    pub rgb: Vec<u8>,
}

enum Format<'a> {
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
    Jpeg(Box<JpegDecoder<ZCursor<&'a [u8]>>>),
}

impl Image {
    /// Reads a PNG or JPEG file; see [`Image::decode`].
    ///
    /// # Errors
    /// Fails if the file cannot be read or decoded; the error names the file.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let metadata = std::fs::metadata(path).map_err(ModelError::io(path))?;
        let size = metadata.len();
        // A device or a pipe may be endless.
        if !metadata.is_file() {
            return Err(ModelError::file(path, "is not a file"));
        }
        if size > MOST_BYTES {
            let reason = format!("{size} bytes are more than a picture may have ({MOST_BYTES})");
            return Err(ModelError::file(path, reason));
        }
        Self::decode(&std::fs::read(path).map_err(ModelError::io(path))?)
            .map_err(|reason| ModelError::file(path, reason))
    }

    /// Returns height and width from the header of a PNG or JPEG file.
    ///
    /// # Errors
    /// Fails if the format is unknown, the header incomplete, or the image too large.
    pub fn dimensions(bytes: &[u8]) -> Result<[usize; 2], String> {
        caught(|| open(bytes).map(|(_, size)| size))
    }

    /// Decodes a PNG or JPEG file, after checking its size. As in PIL's `convert("RGB")`, palettes,
    /// grey and CMYK become RGB, 16 bits become 8, and transparency is dropped. Ignores colour
    /// profiles, EXIF orientation, and an animation's later frames.
    ///
    /// # Errors
    /// Fails if the format is unknown, or the file is truncated, damaged or too large.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        caught(|| Self::decode_file(bytes))
    }

    fn decode_file(bytes: &[u8]) -> Result<Self, String> {
        let (format, [height, width]) = open(bytes)?;
        let rgb = match format {
            Format::Png(mut reader) => {
                let size = reader.output_buffer_size().ok_or("the picture is too large for this machine")?;
                let mut data = vec![0; size];
                let frame = reader.next_frame(&mut data).map_err(|error| broken("PNG", &error))?;
                data.truncate(frame.buffer_size());
                match frame.color_type {
                    ColorType::Rgb => data,
                    ColorType::Rgba => {
                        // In place, to halve the memory.
                        for pixel in 0..data.len() / 4 {
                            data.copy_within(4 * pixel..4 * pixel + 3, 3 * pixel);
                        }
                        data.truncate(data.len() / 4 * 3);
                        data
                    }
                    ColorType::Grayscale => grey(data.len(), data.iter()),
                    ColorType::GrayscaleAlpha => grey(data.len() / 2, data.iter().step_by(2)),
                    ColorType::Indexed => return Err("the palette of the PNG file cannot be read".to_owned()),
                }
            }
            Format::Jpeg(mut decoder) => {
                let scans = bytes.windows(2).filter(|two| two == b"\xff\xda").count();
                if scans.saturating_mul(height * width) > MOST_SCANNED {
                    return Err(format!(
                        "{scans} scans of {width} x {height} pixels are too many for a JPEG file"
                    ));
                }
                decoder.decode().map_err(|error| broken("JPEG", &error))?
            }
        };
        if rgb.len() != 3 * height * width {
            return Err(format!("the file has {} bytes of RGB for {width} x {height} pixels", rgb.len()));
        }
        Ok(Self { width, height, rgb })
    }

    /// Encodes the image as PNG.
    ///
    /// # Errors
    /// Fails if the image has no pixels or `rgb` does not match its size.
    pub fn encode_png(&self) -> Result<Vec<u8>, String> {
        let refused = |error: &dyn std::fmt::Display| format!("the picture cannot be encoded: {error}");
        let side = |side: usize| u32::try_from(side).map_err(|error| refused(&error));
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, side(self.width)?, side(self.height)?);
        encoder.set_color(ColorType::Rgb);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header().map_err(|error| refused(&error))?;
        writer.write_image_data(&self.rgb).map_err(|error| refused(&error))?;
        writer.finish().map_err(|error| refused(&error))?;
        Ok(file)
    }
}

/// Calls the decoders, which panic on some damaged files, for example on a palette of seven bytes.
fn caught<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_panic(call).unwrap_or_else(|panic| Err(format!("the picture cannot be decoded: {panic}")))
}

fn broken(format: &str, error: &dyn std::fmt::Display) -> String {
    format!("the {format} file cannot be decoded: {}", error.to_string().trim())
}

fn open(bytes: &[u8]) -> Result<(Format<'_>, [usize; 2]), String> {
    let (format, [height, width]) = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: 1 << 27 });
        decoder.set_transformations(Transformations::normalize_to_color8());
        // Texts and colour profiles may be large and are unused.
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        let reader = decoder.read_info().map_err(|error| broken("PNG", &error))?;
        let size = [reader.info().height as usize, reader.info().width as usize];
        (Format::Png(Box::new(reader)), size)
    } else if bytes.starts_with(b"\xff\xd8") {
        let options = DecoderOptions::default()
            .set_max_width(usize::MAX)
            .set_max_height(usize::MAX)
            .set_strict_mode(true)
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(|error| broken("JPEG", &error))?;
        let (width, height) = decoder.dimensions().ok_or("the JPEG file has no size")?;
        (Format::Jpeg(Box::new(decoder)), [height, width])
    } else {
        let kind = match bytes {
            [b'G', b'I', b'F', ..] => "a GIF file",
            [b'R', b'I', b'F', b'F', ..] => "a WebP file",
            [] => "empty",
            _ => "in no known format",
        };
        return Err(format!("the picture is {kind}; PNG and JPEG are read, so convert it to one of them"));
    };
    if height == 0 || width == 0 {
        return Err(format!("the picture has no pixels ({width} x {height})"));
    }
    if height.max(width) > MOST_SIDE || height * width > MOST_PIXELS {
        return Err(format!(
            "{width} x {height} pixels are too many; at most {MOST_SIDE} a side and {MOST_PIXELS} in all are read"
        ));
    }
    Ok((format, [height, width]))
}

fn grey<'a>(count: usize, levels: impl Iterator<Item = &'a u8>) -> Vec<u8> {
    let mut rgb = Vec::with_capacity(3 * count);
    levels.for_each(|&level| rgb.extend([level; 3]));
    rgb
}
