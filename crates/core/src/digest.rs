//! Content digests.

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of `parts` and their lengths, in lower-case hexadecimal.
pub fn digest<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.as_ref().len() as u64).to_le_bytes());
        hash.update(part.as_ref());
    }
    hexadecimal(&hash.finalize())
}

/// Formats bytes as lower-case hexadecimal, two digits each.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_the_parts_and_their_bounds() {
        // hashlib.sha256(struct.pack("<Q", 2) + b"ab" + struct.pack("<Q", 1) + b"c").hexdigest()
        let expected = "43ee655579de01ca739b3f95c1c2d3f46d353b2c0df818064ea594506cdb2617";
        assert_eq!(digest(["ab", "c"]), expected);
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
    }

    #[test]
    fn bytes_have_two_digits_each() {
        assert_eq!(hexadecimal(&[0, 0x0a, 0xf0, 255]), "000af0ff");
    }
}
