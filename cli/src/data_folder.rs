//! The folder of an embedded defender: where it is reached, and the token that changing needs.

use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The folder of an embedded defender.
pub(crate) struct DataFolder(PathBuf);

impl DataFolder {
    /// The folder, made where it is not there.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("the data folder {} cannot be made", folder.display()))?;
        Ok(Self(folder.to_owned()))
    }

    fn address_file(&self) -> PathBuf {
        self.0.join("api-address")
    }

    fn token_file(&self) -> PathBuf {
        self.0.join("api-token")
    }

    /// The token of this folder, made where there is none. Nobody else on this machine may read it.
    pub(crate) fn make_token(&self) -> Result<String> {
        let path = self.token_file();
        if let Some(known) = read(&path) {
            return Ok(known);
        }
        let random = || RandomState::new().hash_one(0_u64);
        let token = format!("{:016x}{:016x}", random(), random());
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        file.write_all(token.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(token)
    }

    /// Notes where the defender listens.
    pub(crate) fn note_address(&self, url: &str) -> Result<()> {
        let path = self.address_file();
        fs::write(&path, url).with_context(|| format!("{} cannot be written", path.display()))
    }

    /// The defender listens no more.
    pub(crate) fn forget_address(&self) {
        // A file that stays behind names an address where nobody answers: that is said to whoever tries it.
        let _ = fs::remove_file(self.address_file());
    }
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
