//! Folders for throw-away servers.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Once;

use tempfile::TempDir;

const PREFIX: &str = "phalanx-test-";

/// A folder that goes when it is dropped. A run that was killed could not drop its own, so the first folder of a
/// process sweeps away those whose process is gone.
pub(crate) fn scratch_dir() -> io::Result<TempDir> {
    static SWEEP: Once = Once::new();
    SWEEP.call_once(sweep);
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir()
}

fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            && Path::new("/proc").exists()
        {
            // Somebody else may be sweeping the same folder.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
