use std::path::{Path, PathBuf};

/// Reference data kept beside the project, in `../shared` or where `PHALANX_SHARED_DIR` says.
///
/// Where it is not present, says `skipped: …` and gives `None`: the caller returns, and the project's own small
/// fixtures still test what they can.
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
    eprintln!("skipped: {path} is not in {} (PHALANX_SHARED_DIR names the folder)", folder.display());
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
