//! The folder of an embedded defender: its charts, where it is reached, and the token that changing needs.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::random;

/// The folder of an embedded defender.
pub(crate) struct DataFolder(PathBuf);

impl DataFolder {
    /// The folder, whether it is there or not.
    pub(crate) fn at(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The folder, made where it is not there.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("the data folder {} cannot be made", folder.display()))?;
        Ok(Self::at(folder))
    }

    /// The file of the charts.
    pub(crate) fn charts(&self) -> PathBuf {
        self.0.join("charts.db")
    }

    /// The strategy, where no other file is named.
    pub(crate) fn strategy(&self) -> PathBuf {
        self.0.join("strategy.toml")
    }

    fn address_file(&self) -> PathBuf {
        self.0.join("api-address")
    }

    fn token_file(&self) -> PathBuf {
        self.0.join("api-token")
    }

    /// Where the defender listens that has the folder. The note may be left of one that was killed: what counts is who
    /// has the lock.
    pub(crate) fn address(&self) -> Option<String> {
        read(&self.address_file())
    }

    /// The token of this folder, if one was made.
    pub(crate) fn token(&self) -> Option<String> {
        read(&self.token_file())
    }

    /// The token of this folder, made where there is none. Nobody else on this machine may read it.
    pub(crate) fn make_token(&self) -> Result<String> {
        if let Some(known) = self.token() {
            return Ok(known);
        }
        let (path, token) = (self.token_file(), random::hex());
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(token.as_bytes()));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
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
