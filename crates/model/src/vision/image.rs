//! PNG files as RGB, bounded.

use std::io::Cursor;
use std::path::Path;

use png::{ColorType, Decoder, Limits, Transformations};

use crate::{ModelError, files};

/// Longest side of a picture.
const MOST_SIDE: u32 = 8192;

/// Most pixels of a picture: 100 MB of RGB.
const MOST_PIXELS: u64 = 1 << 25;

/// Most bytes of a file.
const MOST_BYTES: u64 = 1 << 27;

/// A picture of eight bits a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `[height, width, 3]`.
    pub rgb: Vec<u8>,
}

impl Image {
    /// Reads a PNG file; see [`Image::decode`].
    ///
    /// # Errors
    /// Fails if the file cannot be read, or its content is rejected. The error names the file.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let size = std::fs::metadata(path).map_err(ModelError::io(path))?.len();
        if size > MOST_BYTES {
            let reason = format!("{size} bytes are more than a picture may have ({MOST_BYTES})");
            return Err(ModelError::file(path, reason));
        }
        Self::decode(&files::read(path)?).map_err(|reason| ModelError::file(path, reason))
    }

    /// Decodes a PNG file. Palettes and grey become RGB, sixteen bits become eight, and transparency is left
    /// out, as `convert("RGB")` of PIL does. Of an animation only the first frame is read.
    ///
    /// Sides and pixels are checked before memory is allocated.
    ///
    /// # Errors
    /// Returns the reason: not a PNG file, truncated or damaged, or too large.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            let kind = match bytes {
                [0xff, 0xd8, ..] => "a JPEG file",
                [b'G', b'I', b'F', ..] => "a GIF file",
                [b'R', b'I', b'F', b'F', ..] => "a WebP file",
                [] => "empty",
                _ => "in no known format",
            };
            return Err(format!("the picture is {kind}; only PNG is read, so convert it to PNG"));
        }
        let broken = |error: png::DecodingError| format!("the PNG file cannot be decoded: {error}");
        let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: 1 << 27 });
        decoder.set_transformations(Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().map_err(broken)?;
        let (width, height) = (reader.info().width, reader.info().height);
        if width.max(height) > MOST_SIDE || u64::from(width) * u64::from(height) > MOST_PIXELS {
            return Err(format!(
                "{width} x {height} pixels are too many; at most {MOST_SIDE} a side and {MOST_PIXELS} in all are read"
            ));
        }
        let size = reader.output_buffer_size().ok_or("the picture is too large for this machine")?;
        let mut data = vec![0; size];
        let frame = reader.next_frame(&mut data).map_err(broken)?;
        data.truncate(frame.buffer_size());
        let rgb = match frame.color_type {
            ColorType::Rgb => data,
            ColorType::Rgba => {
                data.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
            }
            ColorType::Grayscale => data.iter().flat_map(|grey| [*grey; 3]).collect(),
            ColorType::GrayscaleAlpha => data.chunks_exact(2).flat_map(|pixel| [pixel[0]; 3]).collect(),
            ColorType::Indexed => return Err("the palette of the PNG file cannot be read".to_owned()),
        };
        Ok(Self { width: frame.width as usize, height: frame.height as usize, rgb })
    }
}
