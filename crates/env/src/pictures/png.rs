//! PNG files.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::Path;

use fdeflate::Compressor;
use flate2::write::DeflateEncoder;
use png::{ColorType, Decoder, DecodingError, Limits, Transformations};
use simd_adler32::Adler32;
use turnwise_core::EnvError;
use turnwise_files::catch_panic;

use super::canvas::Picture;

const MOST_SIDE: u32 = 4096;

/// Encodes an image as PNG. Within one build of Turnwise, equal images are encoded as equal bytes.
///
/// # Errors
/// Fails if the image has no pixels.
pub fn encode(picture: &Picture) -> Result<Vec<u8>, EnvError> {
    if picture.rgb().is_empty() {
        return Err(EnvError::Other("a picture cannot be written: it has no pixels".to_owned()));
    }
    let mut file = header(picture.width(), picture.height());
    let filtered = filter(picture, &mut vec![0; 3 * picture.width()]);
    chunk(&mut file, *b"IDAT", &compress(&filtered)?);
    chunk(&mut file, *b"IEND", &[]);
    Ok(file)
}

/// The first rows of several images, compressed once for all of them.
#[derive(Debug)]
pub struct Start {
    width: usize,
    height: usize,
    rows: usize,
    file: Vec<u8>,
    adler: u32,
    last: Vec<u8>,
}

/// Offset of the compressed data, which follows the signature, the header, and the length and name
/// of the data chunk.
const DATA: usize = 8 + 25 + 8;

impl Start {
    /// Compresses `rows`, the first rows of images that are `height` rows high.
    ///
    /// # Errors
    /// Fails unless the number of `rows` is from 1 to `height`.
    pub fn new(rows: &Picture, height: usize) -> Result<Self, EnvError> {
        let (width, count) = (rows.width(), rows.height());
        if !(1..=height).contains(&count) {
            let reason = format!("{count} rows are no beginning of a picture of {height}");
            return Err(EnvError::Other(reason));
        }
        let mut file = header(width, height);
        // The length is written at the end.
        file.extend(*b"\0\0\0\0IDAT");
        // Deflate with 32 KiB windows.
        file.extend([0x78, 0x01]);
        let mut last = vec![0; 3 * width];
        let filtered = filter(rows, &mut last);
        let mut encoder = DeflateEncoder::new(file, flate2::Compression::default());
        encoder.write_all(&filtered).map_err(unwritable)?;
        encoder.flush().map_err(unwritable)?;
        let file = encoder.get_ref().clone();
        let mut adler = Adler32::new();
        adler.write(&filtered);
        Ok(Self { width, height, rows: count, file, adler: adler.finish(), last })
    }

    /// Appends the remaining rows and returns the PNG file.
    ///
    /// # Errors
    /// Fails if the width or the number of the remaining rows is wrong.
    pub fn finish(&self, rest: &Picture) -> Result<Vec<u8>, EnvError> {
        if (rest.width(), self.rows + rest.height()) != (self.width, self.height) {
            return Err(EnvError::Other(format!(
                "{} rows of {} pixels do not complete a picture of {} x {} that has {}",
                rest.height(),
                rest.width(),
                self.width,
                self.height,
                self.rows
            )));
        }
        let mut last = self.last.clone();
        let filtered = filter(rest, &mut last);
        let stream = compress(&filtered)?;
        // Drops header and checksum, which are written for the whole image.
        let block = stream.get(2..stream.len().saturating_sub(4)).unwrap_or_default();
        let mut adler = Adler32::from_checksum(self.adler);
        adler.write(&filtered);
        let mut file = Vec::with_capacity(self.file.len() + block.len() + 64);
        file.extend_from_slice(&self.file);
        file.extend_from_slice(block);
        file.extend(adler.finish().to_be_bytes());
        let length = (file.len() - DATA) as u32;
        file[DATA - 8..DATA - 4].copy_from_slice(&length.to_be_bytes());
        let crc = crc32fast::hash(&file[DATA - 4..]);
        file.extend(crc.to_be_bytes());
        chunk(&mut file, *b"IEND", &[]);
        Ok(file)
    }
}

fn header(width: usize, height: usize) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::from((width as u32).to_be_bytes());
    header.extend((height as u32).to_be_bytes());
    // Eight-bit RGB, default compression and filtering, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut file, *b"IHDR", &header);
    file
}

/// Applies the PNG filter that subtracts from each row the row above it. `above` is the row above
/// the image, and is replaced by the image's last row.
fn filter(picture: &Picture, above: &mut [u8]) -> Vec<u8> {
    let mut filtered = Vec::with_capacity(picture.rgb().len() + picture.height());
    for row in picture.rgb().chunks_exact(above.len()) {
        filtered.push(2);
        filtered.extend(row.iter().zip(&*above).map(|(byte, above)| byte.wrapping_sub(*above)));
        above.copy_from_slice(row);
    }
    filtered
}

#[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` calls")]
fn unwritable(error: std::io::Error) -> EnvError {
    EnvError::Other(format!("a picture cannot be written: {error}"))
}

fn compress(filtered: &[u8]) -> Result<Vec<u8>, EnvError> {
    let mut compressor = Compressor::new(Vec::with_capacity(filtered.len() / 8 + 256)).map_err(unwritable)?;
    compressor.write_data(filtered).map_err(unwritable)?;
    compressor.finish().map_err(unwritable)
}

fn chunk(file: &mut Vec<u8>, name: [u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(name);
    file.extend(data);
    let crc = crc32fast::hash(&file[start..]);
    file.extend(crc.to_be_bytes());
}

/// Reads a PNG file as eight-bit RGB without transparency.
///
/// # Errors
/// Fails if the file cannot be read, is not PNG or is too large.
pub fn read(path: &Path) -> Result<Picture, EnvError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| EnvError::Io { path: name.clone(), source })?;
    decode(BufReader::new(file)).map_err(|reason| EnvError::File { path: name, reason })
}

/// The library panics on some damaged files, for example on a palette of seven bytes.
fn decode(reader: impl std::io::BufRead + std::io::Seek) -> Result<Picture, String> {
    catch_panic(|| decode_file(reader))
        .unwrap_or_else(|panic| Err(format!("this is no PNG picture that can be read: {panic}")))
}

fn decode_file(reader: impl std::io::BufRead + std::io::Seek) -> Result<Picture, String> {
    let broken = |error: DecodingError| format!("this is no PNG picture that can be read: {error}");
    let mut decoder = Decoder::new_with_limits(reader, Limits { bytes: 1 << 27 });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(broken)?;
    let (width, height) = (reader.info().width, reader.info().height);
    if width.max(height) > MOST_SIDE {
        return Err(format!("{width} x {height} pixels are more than {MOST_SIDE} x {MOST_SIDE}"));
    }
    let size = reader.output_buffer_size().ok_or("it is too large")?;
    let mut bytes = vec![0; size];
    let frame = reader.next_frame(&mut bytes).map_err(broken)?;
    bytes.truncate(frame.buffer_size());
    let rgb = match frame.color_type {
        ColorType::Rgb => bytes,
        ColorType::Rgba => bytes.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        ColorType::Grayscale => bytes.iter().flat_map(|grey| [*grey; 3]).collect(),
        ColorType::GrayscaleAlpha => bytes.chunks_exact(2).flat_map(|pixel| [pixel[0]; 3]).collect(),
        ColorType::Indexed => return Err("its palette cannot be read".to_owned()),
    };
    Picture::from_rgb(frame.width as usize, rgb).ok_or_else(|| "it has no pixels".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Picture, String> {
        decode(std::io::Cursor::new(bytes.to_vec()))
    }

    #[test]
    fn pictures_come_back_as_they_were() {
        let mut picture = Picture::new(7, 5, [1, 2, 3]);
        picture.paste(&Picture::new(3, 2, [250, 0, 17]), 2, 1);
        let bytes = encode(&picture).unwrap();
        assert_eq!(decoded(&bytes).unwrap(), picture);
        assert_eq!(encode(&picture).unwrap(), bytes);
    }

    #[test]
    fn a_picture_in_two_parts_is_the_whole_one() {
        let mut whole = Picture::new(31, 40, [7, 90, 200]);
        whole.fill((0, 0, 31, 40), [255, 0, 9], |x, y| (x - 12.0).hypot(y - 23.0) - 11.0);
        let part = |rows: std::ops::Range<usize>| {
            Picture::from_rgb(31, whole.rgb()[93 * rows.start..93 * rows.end].to_vec()).unwrap()
        };
        for rows in [1, 20, 39] {
            let start = Start::new(&part(0..rows), 40).unwrap();
            for _ in 0..2 {
                let file = start.finish(&part(rows..40)).unwrap();
                assert_eq!(decoded(&file).unwrap(), whole, "{rows}");
            }
            assert!(start.finish(&part(rows - 1..40)).unwrap_err().to_string().contains("do not complete"));
            assert!(start.finish(&Picture::new(30, 40 - rows, [0; 3])).is_err());
            let mut wrong = start.finish(&part(rows..40)).unwrap();
            let middle = wrong.len() - 40;
            wrong[middle] ^= 0x55;
            assert!(decoded(&wrong).is_err(), "its checksums are those of the whole");
        }
        assert!(Start::new(&whole, 39).is_err());
    }

    #[test]
    fn broken_files_are_refused() {
        let bytes = encode(&Picture::new(9, 9, [1, 2, 3])).unwrap();
        assert!(decoded(b"no picture").unwrap_err().contains("no PNG picture"));
        assert!(decoded(&bytes[..bytes.len() / 2]).is_err());
        let mut wrong = bytes.clone();
        wrong[45] ^= 0x55;
        assert!(decoded(&wrong).is_err());
        let palette = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/picture/odd-palette");
        let panicked = read(&palette).unwrap_err().to_string();
        assert!(panicked.contains("odd-palette: this is no PNG picture that can be read"), "{panicked}");
        let missing = read(Path::new("no/such.png")).unwrap_err().to_string();
        assert!(missing.starts_with("no/such.png: "), "{missing}");
    }
}
