use std::path::{Path, PathBuf};

/// Returns the path of large reference data in `PHALANX_SHARED_DIR` (default `../shared`).
///
/// Prints `skipped: …` and returns `None` where it is not present: the caller returns, and other tests use the small
/// fixtures of the project.
///
/// ```no_run
/// let Some(golden) = phalanx_testkit::shared("golden/mebo") else { return };
/// assert!(golden.join("manifest.json").exists());
/// ```
pub fn shared(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("PHALANX_SHARED_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let wanted = folder.join(path);
    if wanted.exists() {
        return Some(wanted);
    }
    // The same text for every file, so that a run shows one line for all of them.
    eprintln!("skipped: no large reference data in {} (set PHALANX_SHARED_DIR)", folder.display());
    None
}

/// Returns the list of names that the requirements fix, in TOML.
///
/// ```
/// assert!(phalanx_testkit::requirements().contains("[[metric]]"));
/// ```
pub fn requirements() -> &'static str {
    include_str!("../requirements.toml")
}
