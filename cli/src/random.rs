//! What nobody can guess.

/// 128 random bits of the operating system, in hexadecimal.
pub(crate) fn hex() -> String {
    let mut bytes = [0; 16];
    // A machine without randomness has no way to keep a secret: there is nothing sensible left to do.
    getrandom::fill(&mut bytes).expect("the operating system gives random bits");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}
