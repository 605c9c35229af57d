//! Readers of the store for handlers: opened when there is none free, kept afterwards.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use phalanx_etl::store::{Error, Reader};
use phalanx_service::ApiError;

/// As many as are kept.
const KEPT: usize = 8;

/// Clones are the same readers.
#[derive(Clone)]
pub(crate) struct Readers {
    file: PathBuf,
    free: Arc<Mutex<Vec<Reader>>>,
}

impl Readers {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, free: Arc::default() }
    }

    /// Reads on a thread that may wait.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ApiError> {
        let readers = self.clone();
        let done = tokio::task::spawn_blocking(move || readers.read_here(read)).await;
        let unreadable = |why: String| ApiError::unavailable(format!("the store cannot be read: {why}"));
        done.map_err(|error| unreadable(error.to_string()))?.map_err(|error| unreadable(error.to_string()))
    }

    /// Reads on this thread.
    pub(crate) fn read_here<T>(&self, read: impl FnOnce(&Reader) -> Result<T, Error>) -> Result<T, Error> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = free.map_or_else(|| Reader::open(&self.file), Ok)?;
        let result = read(&reader)?;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(reader);
        }
        Ok(result)
    }
}
