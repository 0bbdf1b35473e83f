//! Reading a picture takes bounded memory, whatever the file claims or hides.
//!
//! A separate program with one test, because the peak is that of the whole process.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod resident;

use png::chunk::ChunkType;
use png::{BitDepth, ColorType};
use turnwise_model::vision::Image;

use resident::peak;

const MB: usize = 1_000_000;

/// Returns a small file of zeros with one more chunk after the header.
fn zeros_with(width: u32, height: u32, color: ColorType, extra: Option<(&[u8; 4], &[u8])>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header().unwrap();
    if let Some((kind, data)) = extra {
        writer.write_chunk(ChunkType(*kind), data).unwrap();
    }
    writer.write_image_data(&vec![0; width as usize * height as usize * color.samples()]).unwrap();
    drop(writer);
    bytes
}

fn zeros(width: u32, height: u32, color: ColorType) -> Vec<u8> {
    zeros_with(width, height, color, None)
}

/// Returns a header of 60000 x 60000 pixels with little data.
fn large_header() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 60_000, 60_000);
    encoder.set_color(ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_chunk(ChunkType(*b"IDAT"), &[0; 64]).unwrap();
    drop(writer);
    bytes
}

#[test]
fn pictures_take_bounded_memory() {
    let (small, large) = (zeros(9, 7, ColorType::Rgb), zeros(8192, 4096, ColorType::Grayscale));
    let alpha = zeros(8192, 4096, ColorType::Rgba);
    // The zlib data of a 33 MB picture, used as another chunk.
    let at = large.windows(4).position(|four| four == b"IDAT").unwrap();
    let length = u32::from_be_bytes(large[at - 4..at].try_into().unwrap()) as usize;
    let stream = &large[at + 4..at + 4 + length];
    let with = |kind: &[u8; 4], data: &[u8]| zeros_with(9, 7, ColorType::Rgb, Some((kind, data)));
    for (name, file, most, whole) in [
        ("a header of 10 GB", large_header(), 8 * MB, false),
        ("a compressed text", with(b"zTXt", &[b"Comment\0\0", stream].concat()), 8 * MB, true),
        ("a colour profile", with(b"iCCP", &[b"sRGB\0\0", stream].concat()), 8 * MB, true),
        ("more data than rows", [&small[..33], &large[33..]].concat(), 8 * MB, true),
        // Besides the pixels, one row and the decoder's window.
        ("the largest picture", large, 8 * MB + 4 * 8192 * 4096, true),
        ("the largest picture with transparency", alpha, 8 * MB + 4 * 8192 * 4096, true),
    ] {
        assert!(file.len() < 2 * MB, "{name}: {}", file.len());
        let Some((risen, found)) = peak(|| Image::decode(&file)) else {
            eprintln!("skipped: the peak of a process's memory cannot be reset here");
            return;
        };
        assert!(risen < most, "{name}: {risen} bytes");
        assert_eq!(found.is_ok(), whole, "{name}: {:?}", found.err());
    }
    let Some((risen, _)) = peak(|| std::hint::black_box(vec![1u8; 100 * MB])) else { return };
    assert!(risen > 90 * MB, "{risen}");
}
