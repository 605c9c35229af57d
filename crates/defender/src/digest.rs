//! Hashes that name things: the same on every machine, in every version.

use sha2::{Digest as _, Sha256};

/// The first 16 bytes of the SHA-256 of these parts; each is counted, so `ab, c` is not `a, bc`.
pub(crate) fn digest(parts: &[&str]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut first = [0; 16];
    first.copy_from_slice(&hash.finalize()[..16]);
    first
}

/// Bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Eight bytes of a digest as a number.
pub(crate) fn number(parts: &[&str]) -> u64 {
    let bytes = digest(parts);
    u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(hex(&[0x0f, 0xa0]), "0fa0");
    }
}
