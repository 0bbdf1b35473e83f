//! The memory of reading a picture is bounded, whatever a file promises or hides.
//!
//! One test in a program of its own: the peak is the whole process's.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;

use png::{BitDepth, ColorType};
use turnwise_model::vision::Image;

const MB: usize = 1_000_000;

/// A line of `/proc/self/status`, in bytes.
fn status(key: &str) -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().unwrap() * 1024
}

/// Rise of the process's resident memory above its start while `work` runs; none if the kernel does not let a process
/// forget its peak.
fn peak<T>(work: impl FnOnce() -> T) -> Option<(usize, T)> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    let before = status("VmRSS:");
    let found = work();
    Some((status("VmHWM:").saturating_sub(before), found))
}

/// Returns a file of zeros, which is small.
fn zeros(width: u32, height: u32, color: ColorType) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let data = vec![0; width as usize * height as usize * color.samples()];
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
    bytes
}

/// Returns a chunk with its checksum.
fn chunk(kind: &[u8], data: &[u8]) -> Vec<u8> {
    let mut crc = !0u32;
    for &byte in kind.iter().chain(data) {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    [&(data.len() as u32).to_be_bytes(), kind, data, &(!crc).to_be_bytes()].concat()
}

#[test]
fn pictures_take_bounded_memory() {
    let (small, large) = (zeros(9, 7, ColorType::Rgb), zeros(8192, 4096, ColorType::Grayscale));
    let alpha = zeros(8192, 4096, ColorType::Rgba);
    // The data of a picture of 33 MB as another thing: a stream of zlib.
    let at = large.windows(4).position(|four| four == b"IDAT").unwrap();
    let length = u32::from_be_bytes(large[at - 4..at].try_into().unwrap()) as usize;
    let stream = &large[at + 4..at + 4 + length];
    let with = |kind: &[u8], data: &[u8]| [&small[..33], &chunk(kind, data), &small[33..]].concat();
    let header = |rest: &[u8]| {
        let sides = [60_000u32.to_be_bytes(), 60_000u32.to_be_bytes()].concat();
        [&small[..8], &chunk(b"IHDR", &[&sides, rest].concat()), &small[33..]].concat()
    };
    for (name, file, most, whole) in [
        ("a header of 10 GB", header(&[8, 2, 0, 0, 0]), 8 * MB, false),
        ("a compressed text", with(b"zTXt", &[b"Comment\0\0", stream].concat()), 8 * MB, true),
        ("a colour profile", with(b"iCCP", &[b"sRGB\0\0", stream].concat()), 8 * MB, true),
        ("more data than rows", [&small[..33], &large[33..]].concat(), 8 * MB, true),
        // Beside the pixels, one row and the decoder's window.
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
    // The measure notices a picture.
    let Some((risen, _)) = peak(|| std::hint::black_box(vec![1u8; 100 * MB])) else { return };
    assert!(risen > 90 * MB, "{risen}");
}
