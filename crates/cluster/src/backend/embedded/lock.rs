//! One process per data folder.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::backend::Error;

/// Holds a data folder until it is dropped or the process ends, however that ends.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    pub(super) fn take(folder: &Path) -> Result<Self, Error> {
        let what = format!("locking the data folder {}", folder.display());
        let path = folder.join("lock");
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| Error::invalid(&what, format!("{}: {e}", path.display())))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The pid is there to help; without it the answer is the same.
                let _ = file.read_to_string(&mut pid);
                let pid = pid.trim();
                let reason =
                    format!("process {pid} is using it; stop that process, or choose another folder");
                return Err(Error::invalid(what, reason));
            }
            Err(TryLockError::Error(e)) => return Err(Error::invalid(what, e)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|e| Error::invalid(&what, e))?;
        Ok(Self { _file: file })
    }
}
