//! The GGUF container: header, metadata, tensor offsets and data, little-endian.

use std::io::{self, Write};

const ALIGNMENT: u64 = 32;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Integers(Vec<i32>),
}

pub(super) type Encode<'a> = Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>;

pub(super) struct Tensor<'a> {
    pub(super) name: String,
    /// Outermost dimension first.
    pub(super) shape: Vec<usize>,
    /// Type id in the file format.
    pub(super) kind: u32,
    pub(super) bytes: u64,
    pub(super) encode: Encode<'a>,
}

pub(super) fn write(
    out: &mut impl Write,
    metadata: &[(String, Value)],
    tensors: &[Tensor<'_>],
) -> io::Result<()> {
    let mut head = b"GGUF".to_vec();
    head.extend(3_u32.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut head, key);
        put_value(&mut head, value);
    }
    let mut offset: u64 = 0;
    for tensor in tensors {
        put_text(&mut head, &tensor.name);
        head.extend((tensor.shape.len() as u32).to_le_bytes());
        // The format lists the innermost dimension first.
        tensor.shape.iter().rev().for_each(|&size| head.extend((size as u64).to_le_bytes()));
        head.extend(tensor.kind.to_le_bytes());
        head.extend(offset.to_le_bytes());
        offset = (offset + tensor.bytes).next_multiple_of(ALIGNMENT);
    }
    pad(&mut head, 0);
    out.write_all(&head)?;
    for tensor in tensors {
        (tensor.encode)(out)?;
        let mut rest = Vec::new();
        pad(&mut rest, tensor.bytes);
        out.write_all(&rest)?;
    }
    Ok(())
}

/// Pads with zeros until `before` plus the length of `bytes` is aligned.
fn pad(bytes: &mut Vec<u8>, before: u64) {
    let end = (before + bytes.len() as u64).next_multiple_of(ALIGNMENT) - before;
    bytes.resize(end as usize, 0);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    let mut kind = |kind: u32| bytes.extend(kind.to_le_bytes());
    match value {
        Value::U32(number) => {
            kind(4);
            bytes.extend(number.to_le_bytes());
        }
        Value::F32(number) => {
            kind(6);
            bytes.extend(number.to_le_bytes());
        }
        Value::Bool(flag) => {
            kind(7);
            bytes.push(u8::from(*flag));
        }
        Value::Text(text) => {
            kind(8);
            put_text(bytes, text);
        }
        Value::Texts(texts) => {
            kind(9);
            kind(8);
            bytes.extend((texts.len() as u64).to_le_bytes());
            for text in texts {
                put_text(bytes, text);
            }
        }
        Value::Integers(numbers) => {
            kind(9);
            kind(5);
            bytes.extend((numbers.len() as u64).to_le_bytes());
            for number in numbers {
                bytes.extend(number.to_le_bytes());
            }
        }
    }
}
