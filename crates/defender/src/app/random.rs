//! Random identifiers and secrets.

/// Returns 128 random bits of the operating system, in hexadecimal.
pub fn random_hex() -> String {
    let mut bytes = [0; 16];
    // Without random bits no secret can be kept, so there is nothing sensible left to do.
    getrandom::fill(&mut bytes).expect("the operating system provides random bits");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}
