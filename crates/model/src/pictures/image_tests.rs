use png::{BitDepth, ColorType};
use serde_json::Value;

use super::Image;

fn png(width: u32, height: u32, color: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == ColorType::Indexed {
        encoder.set_palette(vec![1, 2, 3, 40, 50, 60]);
    }
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    bytes
}

fn small() -> Vec<u8> {
    let rgb: Vec<u8> = (0..9 * 7 * 3).map(|index| (index * 37 % 251) as u8).collect();
    png(9, 7, ColorType::Rgb, BitDepth::Eight, &rgb)
}

fn chunk(kind: &[u8], data: &[u8]) -> Vec<u8> {
    let mut chunk = (data.len() as u32).to_be_bytes().to_vec();
    chunk.extend(kind);
    chunk.extend(data);
    let mut crc = !0u32;
    for &byte in &chunk[4..] {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    chunk.extend((!crc).to_be_bytes());
    chunk
}

fn with_header(file: &[u8], width: u32, height: u32, rest: [u8; 5]) -> Vec<u8> {
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &rest].concat();
    [&file[..8], &chunk(b"IHDR", &header), &file[33..]].concat()
}

fn with_chunk(file: &[u8], kind: &[u8], data: &[u8]) -> Vec<u8> {
    [&file[..33], &chunk(kind, data), &file[33..]].concat()
}

fn damaged(mut file: Vec<u8>, at: usize) -> Vec<u8> {
    file[at] ^= 0x55;
    file
}

struct Jpeg {
    name: String,
    file: Vec<u8>,
    size: [usize; 2],
    rgb: Vec<u8>,
}

fn jpegs() -> Vec<Jpeg> {
    let path = format!("{}/tests/golden/qwen2_5_vl/jpeg.json", env!("CARGO_MANIFEST_DIR"));
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let bytes = |value: &Value| -> Vec<u8> {
        let text = value.as_str().unwrap();
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let of = |(name, case): (&String, &Value)| {
        let size = [0, 1].map(|side| case["size"][side].as_u64().unwrap() as usize);
        Jpeg { name: name.clone(), file: bytes(&case["file"]), size, rgb: bytes(&case["rgb"]) }
    };
    golden.as_object().unwrap().iter().map(of).collect()
}

fn jpeg(name: &str) -> Vec<u8> {
    jpegs().into_iter().find(|case| case.name == name).unwrap().file
}

fn with_sides(mut file: Vec<u8>, height: u16, width: u16) -> Vec<u8> {
    let at = file.windows(2).position(|two| matches!(two, [0xff, 0xc0 | 0xc2])).unwrap();
    file[at + 5..at + 7].copy_from_slice(&height.to_be_bytes());
    file[at + 7..at + 9].copy_from_slice(&width.to_be_bytes());
    file
}

#[test]
fn every_colour_type_becomes_rgb() {
    for (color, depth, data, expected) in [
        (ColorType::Rgb, BitDepth::Eight, &[1, 2, 3, 4, 5, 6][..], [1, 2, 3, 4, 5, 6]),
        (ColorType::Rgba, BitDepth::Eight, &[1, 2, 3, 0, 4, 5, 6, 255], [1, 2, 3, 4, 5, 6]),
        (ColorType::Grayscale, BitDepth::Eight, &[7, 9], [7, 7, 7, 9, 9, 9]),
        (ColorType::Grayscale, BitDepth::One, &[0b0100_0000], [0, 0, 0, 255, 255, 255]),
        (ColorType::Grayscale, BitDepth::Sixteen, &[7, 200, 9, 1], [7, 7, 7, 9, 9, 9]),
        (ColorType::GrayscaleAlpha, BitDepth::Eight, &[7, 0, 9, 9], [7, 7, 7, 9, 9, 9]),
        (ColorType::Indexed, BitDepth::Eight, &[1, 0], [40, 50, 60, 1, 2, 3]),
        (ColorType::Rgb, BitDepth::Sixteen, &[1, 9, 2, 9, 3, 9, 4, 9, 5, 9, 6, 9], [1, 2, 3, 4, 5, 6]),
    ] {
        let file = png(2, 1, color, depth, data);
        let found = Image::decode(&file).unwrap();
        assert_eq!((found.width, found.height, &found.rgb[..]), (2, 1, &expected[..]), "{color:?} {depth:?}");
        assert_eq!(Image::dimensions(&file), Ok([1, 2]));
    }
    // A transparent colour keeps its levels.
    let rgb = png(2, 1, ColorType::Rgb, BitDepth::Eight, &[1, 2, 3, 4, 5, 6]);
    let keyed = with_chunk(&rgb, b"tRNS", &[0, 1, 0, 2, 0, 3]);
    assert_eq!(Image::decode(&keyed).unwrap().rgb, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn jpeg_files_have_the_pixels_that_pillow_reads() {
    let cases = jpegs();
    assert_eq!(cases.len(), 7);
    for Jpeg { name, file, size, rgb: expected } in cases {
        assert_eq!(Image::dimensions(&file), Ok(size), "{name}");
        let found = Image::decode(&file).unwrap();
        assert_eq!([found.height, found.width], size, "{name}");
        // Decoders differ in rounding and in chroma upsampling.
        let apart = |rgb: &[u8]| {
            let each = || rgb.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b));
            (each().max().unwrap(), each().map(f64::from).sum::<f64>() / expected.len() as f64)
        };
        let (most, mean) = apart(&found.rgb);
        assert!(most <= 4 && mean < 0.5, "{name}: {most} {mean}");
        let mut swapped = found.rgb.clone();
        swapped.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
        let shifted = [&found.rgb[3 * size[1]..], &found.rgb[..3 * size[1]]].concat();
        assert!(apart(&shifted).0 > 8 && (name == "grey" || apart(&swapped).0 > 8), "{name}");
    }
}

#[test]
fn hostile_pictures_are_refused_with_the_file_and_the_reason() {
    let (whole, rgb) = (small(), [8, 2, 0, 0, 0]);
    let data = whole.windows(4).position(|four| four == b"IDAT").unwrap();
    let (plain, progressive) = (jpeg("444"), jpeg("progressive"));
    let scans = [&progressive[..2], b"\xff\xfe\x00\x42", &b"\xff\xda".repeat(32), &progressive[2..]].concat();
    let odd = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/picture/odd-palette");
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, reason) in [
        ("palette of seven bytes", std::fs::read(odd).unwrap(), "the picture cannot be decoded"),
        ("bomb", with_header(&whole, 60_000, 60_000, rgb), "60000 x 60000 pixels are too many"),
        ("long", with_header(&whole, 8193, 1, rgb), "8193 x 1 pixels are too many"),
        ("large", with_header(&whole, 8192, 4097, rgb), "at most 8192 a side and 33554432 in all"),
        ("beyond", with_header(&whole, u32::MAX, u32::MAX, rgb), "cannot be decoded"),
        ("no width", with_header(&whole, 0, 7, rgb), "cannot be decoded"),
        ("no height", with_header(&whole, 9, 0, rgb), "cannot be decoded"),
        ("more rows", with_header(&whole, 9, 8, rgb), "cannot be decoded"),
        ("colour type", with_header(&whole, 9, 7, [8, 5, 0, 0, 0]), "cannot be decoded"),
        ("depth", with_header(&whole, 9, 7, [4, 2, 0, 0, 0]), "cannot be decoded"),
        ("compression", with_header(&whole, 9, 7, [8, 2, 1, 0, 0]), "cannot be decoded"),
        ("interlacing", with_header(&whole, 9, 7, [8, 2, 0, 0, 2]), "cannot be decoded"),
        ("no palette", with_header(&whole, 9, 7, [8, 3, 0, 0, 0]), "cannot be decoded"),
        ("header alone", whole[..33].to_vec(), "cannot be decoded"),
        ("half a header", whole[..20].to_vec(), "cannot be decoded"),
        ("truncated", whole[..whole.len() / 2].to_vec(), "cannot be decoded"),
        ("without an end", whole[..whole.len() - 12].to_vec(), "cannot be decoded"),
        ("checksum of the header", damaged(whole.clone(), 30), "cannot be decoded"),
        ("checksum of the data", damaged(whole.clone(), whole.len() - 14), "cannot be decoded"),
        ("damaged data", damaged(whole.clone(), data + 20), "cannot be decoded"),
        ("jpeg bomb", with_sides(plain.clone(), 65_000, 65_000), "65000 x 65000 pixels are too many"),
        ("jpeg scans", with_sides(scans, 4000, 8000), "scans of 8000 x 4000 pixels are too many"),
        ("jpeg without width", with_sides(plain.clone(), 17, 0), "the JPEG file cannot be decoded"),
        ("jpeg without height", with_sides(plain.clone(), 0, 23), "the JPEG file cannot be decoded"),
        ("jpeg truncated", plain[..plain.len() / 2].to_vec(), "the JPEG file cannot be decoded"),
        ("jpeg start", b"\xff\xd8\xff\xe0".to_vec(), "the JPEG file cannot be decoded"),
        ("progressive truncated", progressive[..progressive.len() * 3 / 4].to_vec(), "cannot be decoded"),
        ("gif", b"GIF89a".to_vec(), "a GIF file; PNG and JPEG are read"),
        ("webp", b"RIFF\0\0\0\0WEBP".to_vec(), "a WebP file"),
        ("empty", Vec::new(), "is empty"),
        ("text", b"<svg/>".to_vec(), "in no known format"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = Image::read(&path).expect_err(name).to_string();
        assert!(error.starts_with(&path.display().to_string()) && error.contains(reason), "{name}: {error}");
    }
    let missing = Image::read(&folder.path().join("missing")).unwrap_err().to_string();
    assert!(missing.contains("missing: "), "{missing}");
    let error = Image::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("is not a file"), "{error}");
}

#[test]
fn unusual_pictures_are_read_as_they_are() {
    let whole = small();
    let expected = Image::decode(&whole).unwrap();
    let data = whole.windows(4).position(|four| four == b"IDAT").unwrap() - 4;
    let text = [&b"Comment\0"[..], &vec![b'x'; 30_000_000]].concat();
    let noise: Vec<u8> = (0..1000u32).map(|index| (index * index % 251) as u8).collect();
    let comment = chunk(b"tEXt", b"Comment\0x");
    let wrong_checksum = damaged(comment.clone(), comment.len() - 1);
    let animated = {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 9, 7);
        encoder.set_color(ColorType::Rgb);
        encoder.set_animated(2, 0).unwrap();
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&expected.rgb).unwrap();
        writer.write_image_data(&vec![0; expected.rgb.len()]).unwrap();
        drop(writer);
        bytes
    };
    for (name, bytes) in [
        ("a text of 30 MB", with_chunk(&whole, b"tEXt", &text)),
        ("an invalid compressed text", with_chunk(&whole, b"zTXt", &[b"Comment\0\0", &noise[..]].concat())),
        ("an invalid colour profile", with_chunk(&whole, b"iCCP", &[b"sRGB\0\0", &noise[..]].concat())),
        ("an unknown chunk", with_chunk(&whole, b"abCd", &noise)),
        ("a wrong checksum of a text", [&whole[..data], &wrong_checksum, &whole[data..]].concat()),
        ("an animation", animated),
        ("bytes after the end", [&whole[..], &noise].concat()),
    ] {
        assert_eq!(Image::decode(&bytes), Ok(expected.clone()), "{name}");
    }
}

#[test]
fn a_flipped_bit_of_a_file_never_panics() {
    for file in [small(), jpeg("420"), jpeg("progressive")] {
        for at in 0..file.len() {
            let mut other = file.clone();
            other[at] ^= 1 << (at % 8);
            if let Ok(found) = Image::decode(&other) {
                assert_eq!(found.rgb.len(), 3 * found.width * found.height);
            }
        }
    }
}
