//! Fast hashing. The maps only number items in order of first appearance, so hash values never
//! affect results.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FoldHasher>>;

#[derive(Default)]
pub(crate) struct FoldHasher(u64);

impl FoldHasher {
    fn fold(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0x9E37_79B9_7F4A_7C15_u128;
        self.0 = ((product as u64) ^ ((product >> 64) as u64)).rotate_left(23) ^ 0xA076_1D64_78BD_642F;
    }
}

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        let product = u128::from(self.0) * 0xD6E8_FEB8_6659_FD93_u128;
        (product as u64) ^ ((product >> 64) as u64)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for &word in words {
            self.fold(u64::from_le_bytes(word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.fold(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, value: u8) {
        self.fold(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.fold(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.fold(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.fold(value as u64);
    }

    fn write_u128(&mut self, value: u128) {
        self.fold(value as u64);
        self.fold((value >> 64) as u64);
    }
}
