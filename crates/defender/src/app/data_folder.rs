//! The folder of an embedded defender: its charts, its address and its write token.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{AppError, random_hex};

/// The folder of an embedded defender.
pub struct DataFolder(PathBuf);

impl DataFolder {
    /// Returns the folder, whether it exists or not.
    pub fn at(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Returns the folder and creates it if it does not exist.
    pub fn open(folder: &Path) -> Result<Self, AppError> {
        fs::create_dir_all(folder)
            .map_err(|source| AppError::DataFolder { folder: folder.to_owned(), source })?;
        Ok(Self::at(folder))
    }

    /// Returns the path of the chart database.
    pub fn charts(&self) -> PathBuf {
        self.0.join("charts.db")
    }

    /// Returns the path of the strategy file that is used when no other file is named.
    pub fn strategy(&self) -> PathBuf {
        self.0.join("strategy.toml")
    }

    fn address_file(&self) -> PathBuf {
        self.0.join("api-address")
    }

    fn token_file(&self) -> PathBuf {
        self.0.join("api-token")
    }

    /// Returns the URL of the defender that uses the folder. A killed defender leaves its address behind: only the lock of
    /// the folder shows whether one runs.
    pub fn address(&self) -> Option<String> {
        read(&self.address_file())
    }

    /// Returns the write token of the folder, if it has one.
    pub fn token(&self) -> Option<String> {
        read(&self.token_file())
    }

    /// Returns the write token of the folder and creates it if there is none. Only its owner may read the file.
    pub fn ensure_token(&self) -> Result<String, AppError> {
        if let Some(known) = self.token() {
            return Ok(known);
        }
        let (path, token) = (self.token_file(), random_hex());
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(token.as_bytes()));
        written.map_err(|source| AppError::Write { path, source })?;
        Ok(token)
    }

    /// Stores the URL of the defender.
    pub fn write_address(&self, url: &str) -> Result<(), AppError> {
        let path = self.address_file();
        fs::write(&path, url).map_err(|source| AppError::Write { path, source })
    }

    /// Deletes the stored URL.
    pub fn remove_address(&self) {
        // A file that remains names an address where nothing listens, and a client that tries it reports that.
        let _ = fs::remove_file(self.address_file());
    }
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
