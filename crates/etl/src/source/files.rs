//! Files, one after the other, with a cursor that survives interruptions.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::limit::Bounded;
use super::{Context, Cut, Done, Extract, Failure, Http, Limits, Place, Source, Step, body_failure, redact};
use crate::core::backoff::Fault;
use crate::record::{Item, SourceRef};
use crate::text::hex;

/// The items of one file, in order.
pub trait Rows: Send {
    /// The next item's bytes.
    fn next_row(&mut self) -> Result<Option<Vec<u8>>, RowsError>;

    /// How many items the file declares, once it was read.
    fn declared(&self) -> Option<u64>;
}

/// Why there is no further item.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file is of a kind the provider does not know.
    #[error("{0}")]
    Format(String),
    /// The file ends or breaks where it should not.
    #[error(transparent)]
    Cut(#[from] Cut),
}

/// Makes the items of one file from its bytes and its name.
pub type OpenRows = Box<dyn Fn(Box<dyn Read + Send>, &str) -> Result<Box<dyn Rows>, RowsError> + Send>;

/// Where a file is read from.
pub(crate) enum Part {
    Local(PathBuf),
    Remote(String, Http),
    /// A file in an archive that was read whole.
    Member(Arc<Vec<u8>>, String, String),
}

impl Part {
    pub(crate) fn location(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Remote(url, _) => redact(url),
            Self::Member(_, archive, name) => format!("{archive}!/{name}"),
        }
    }

    /// Changes whenever the file does; 0 where that cannot be known.
    fn stamp(&self) -> (u64, u64) {
        let Self::Local(path) = self else { return (0, 0) };
        let Ok(metadata) = fs::metadata(path) else { return (0, 0) };
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        (metadata.len(), modified.map_or(0, |time| time.as_millis() as u64))
    }
}

/// Where to go on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Cursor {
    /// The file that was being read; `None` before the first.
    file: Option<String>,
    /// Items of it that are stored.
    index: u64,
    /// Its length and time, so that another file of the same name is read from its beginning.
    stamp: (u64, u64),
    /// What was found missing so far.
    gaps: Vec<String>,
}

/// Reads files one after the other.
pub struct Files {
    parts: Vec<Part>,
    open_rows: OpenRows,
    next_part: usize,
    current: Option<Current>,
    cursor: Cursor,
    limits: Limits,
    /// Bytes of the file that is being read.
    bytes: Arc<AtomicU64>,
}

struct Current {
    rows: Box<dyn Rows>,
    hash: Arc<Mutex<Sha256>>,
    location: String,
    fetched: Duration,
    /// An item that was read ahead, to know whether the file goes on.
    ahead: Option<Vec<u8>>,
}

impl Files {
    /// What `source` names: a file over HTTP, a local file, or the files of a folder whose names `fits`, by name.
    pub fn open(
        source: &Source,
        fits: impl Fn(&str) -> bool,
        open_rows: OpenRows,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Self, Failure> {
        Ok(Self::new(Self::list(source, fits, context)?, open_rows, resume, context.limits))
    }

    /// What there is to read. An archive is read whole, and each file in it that fits is one to read.
    pub(crate) fn list(
        source: &Source,
        fits: impl Fn(&str) -> bool,
        context: &Context,
    ) -> Result<Vec<Part>, Failure> {
        let (input, location): (Box<dyn Read>, _) = match &source.place {
            Place::Path(path) if is_archive(&path.to_string_lossy()) => {
                let broken = |error| Failure::Broken(format!("{}: {error}", path.display()));
                (Box::new(File::open(path).map_err(broken)?), path.display().to_string())
            }
            Place::Url(url) if is_archive(url) => {
                (context.http.get(url, &[], context.now)?.body, redact(url))
            }
            Place::Path(path) => return local(path, fits),
            Place::Url(url) => return Ok(vec![Part::Remote(url.clone(), context.http.clone())]),
        };
        let mut bytes = Vec::new();
        Bounded::new(input, context.limits.download, "it has")
            .read_to_end(&mut bytes)
            .map_err(|error| body_failure(&location, &error))?;
        members(bytes, &location, fits)
    }

    pub(crate) fn new(parts: Vec<Part>, open_rows: OpenRows, resume: Option<&str>, limits: Limits) -> Self {
        let mut cursor: Cursor = resume.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let at = cursor.file.as_ref().and_then(|file| parts.iter().position(|part| part.location() == *file));
        match at {
            Some(at) if parts[at].stamp() != cursor.stamp => cursor.index = 0,
            Some(_) => {}
            None => cursor = Cursor::default(),
        }
        let (next_part, bytes) = (at.unwrap_or_default(), Arc::default());
        Self { parts, open_rows, next_part, current: None, cursor, limits, bytes }
    }

    /// Opens the next file and skips what is stored of it.
    fn open_next(&mut self, now: Duration) -> Result<(), Failure> {
        let part = &self.parts[self.next_part];
        let (location, stamp) = (part.location(), part.stamp());
        let input: Box<dyn Read + Send> = match part {
            Part::Local(path) => {
                Box::new(File::open(path).map_err(|error| Failure::Broken(format!("{location}: {error}")))?)
            }
            Part::Remote(url, http) => http.get(url, &[], now)?.body,
            Part::Member(archive, _, name) => {
                let broken = |error: &dyn std::fmt::Display| Failure::Broken(format!("{location}: {error}"));
                let mut archive =
                    zip::ZipArchive::new(io::Cursor::new(&archive[..])).map_err(|error| broken(&error))?;
                let member = archive.by_name(name).map_err(|error| broken(&error))?;
                let mut whole = Vec::new();
                Bounded::new(member, self.limits.unpacked, "it unpacks to")
                    .read_to_end(&mut whole)
                    .map_err(|error| broken(&error))?;
                Box::new(io::Cursor::new(whole))
            }
        };
        let hash = Arc::new(Mutex::new(Sha256::new()));
        self.bytes.store(0, Ordering::Relaxed);
        let input = Box::new(Hashing { input, hash: Arc::clone(&hash), bytes: Arc::clone(&self.bytes) });
        let input: Box<dyn Read + Send> = if location.ends_with(".gz") {
            let unpacked = flate2::read::MultiGzDecoder::new(input);
            Box::new(Bounded::new(unpacked, self.limits.unpacked, "it unpacks to"))
        } else {
            input
        };
        let rows = (self.open_rows)(input, &location).map_err(|error| self.refuse(&location, &error))?;
        if self.cursor.file.as_ref() != Some(&location) {
            self.cursor.index = 0;
        }
        self.cursor.file = Some(location.clone());
        self.cursor.stamp = stamp;
        let mut current = Current { rows, hash, location, fetched: now, ahead: None };
        for _ in 0..self.cursor.index {
            self.advance(&mut current)?;
        }
        self.advance(&mut current)?;
        self.current = Some(current);
        Ok(())
    }

    /// Reads one item ahead. What is cut in the middle is a gap in a local file and worth another try in a remote one.
    fn advance(&mut self, current: &mut Current) -> Result<(), Failure> {
        current.ahead = match current.rows.next_row() {
            Ok(row) => row,
            Err(RowsError::Cut(cut)) if self.is_local() && !cut.is_too_large() => {
                self.gap(format!("{}: {cut}", current.location));
                None
            }
            Err(error) => return Err(self.refuse(&current.location, &error)),
        };
        Ok(())
    }

    fn is_local(&self) -> bool {
        !matches!(self.parts[self.next_part], Part::Remote(..))
    }

    fn refuse(&self, location: &str, error: &RowsError) -> Failure {
        match error {
            RowsError::Cut(cut) if !self.is_local() && !cut.is_too_large() => {
                Failure::retry(Fault::Broken(format!("{location}: {error}")))
            }
            _ => Failure::Broken(format!("{location}: {error}")),
        }
    }

    fn gap(&mut self, gap: String) {
        if !self.cursor.gaps.contains(&gap) {
            self.cursor.gaps.push(gap);
        }
    }
}

impl Extract for Files {
    fn next(&mut self, max: usize, now: Duration) -> Result<Step, Failure> {
        if self.next_part == self.parts.len() {
            let gaps = std::mem::take(&mut self.cursor.gaps);
            let gaps = (!gaps.is_empty()).then(|| gaps.join("; "));
            // The next run reads everything again: what has not changed costs a comparison.
            return Ok(Step::Done { gaps, cursor: text(&Cursor::default()) });
        }
        if self.current.is_none() {
            self.open_next(now)?;
        }
        let Some(mut current) = self.current.take() else { unreachable!("opened above") };
        let mut items = Vec::with_capacity(max.min(1024));
        while items.len() < max {
            let Some(raw) = current.ahead.take() else { break };
            items.push(Item { position: self.cursor.index, raw });
            self.cursor.index += 1;
            self.advance(&mut current)?;
        }
        let page_done = current.ahead.is_none();
        let mut source =
            SourceRef { location: current.location.clone(), checksum: None, fetched: current.fetched };
        if page_done {
            if let Some(declared) = current.rows.declared()
                && declared != self.cursor.index
                && !self.cursor.gaps.iter().any(|gap| gap.starts_with(&current.location))
            {
                let gap = format!(
                    "{}: declares {declared} records and holds {}",
                    current.location, self.cursor.index
                );
                if !self.is_local() {
                    return Err(Failure::retry(Fault::Incomplete(gap)));
                }
                self.gap(gap);
            }
            source.checksum = current.hash.lock().ok().map(|hash| hex(&hash.clone().finalize()));
            self.next_part += 1;
            if let Some(next) = self.parts.get(self.next_part) {
                self.cursor = Cursor {
                    file: Some(next.location()),
                    index: 0,
                    stamp: next.stamp(),
                    gaps: std::mem::take(&mut self.cursor.gaps),
                };
            }
        } else {
            self.current = Some(current);
        }
        Ok(Step::Items { items, source, cursor: text(&self.cursor), page_done })
    }

    /// In bytes; how long a remote file is nobody knows before its end.
    fn done(&self) -> Option<Done> {
        let len = |part: &Part| part.stamp().0;
        let total = self.parts.iter().map(len).sum();
        let before: u64 = self.parts[..self.next_part].iter().map(len).sum();
        let reading = if self.current.is_some() { self.bytes.load(Ordering::Relaxed) } else { 0 };
        (total > 0).then_some(Done { done: (before + reading).min(total), total })
    }
}

/// The file `path`, or the files of the folder `path` whose names `fits`, by name.
fn local(path: &Path, fits: impl Fn(&str) -> bool) -> Result<Vec<Part>, Failure> {
    let broken = |error: io::Error| Failure::Broken(format!("{}: {error}", path.display()));
    let mut files = Vec::new();
    if fs::metadata(path).map_err(broken)?.is_dir() {
        for entry in fs::read_dir(path).map_err(broken)? {
            let file = entry.map_err(broken)?.path();
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
            if file.is_file() && name.is_some_and(|name| fits(&name)) {
                files.push(file);
            }
        }
        if files.is_empty() {
            let folder = path.display();
            return Err(Failure::Broken(format!("{folder}: there is no file in it this provider knows")));
        }
    } else {
        files.push(path.to_owned());
    }
    files.sort_unstable();
    Ok(files.into_iter().map(Part::Local).collect())
}

fn is_archive(name: &str) -> bool {
    name.split('?').next().is_some_and(|name| name.ends_with(".zip"))
}

/// The files in an archive that fit, by name.
fn members(bytes: Vec<u8>, location: &str, fits: impl Fn(&str) -> bool) -> Result<Vec<Part>, Failure> {
    let archive = zip::ZipArchive::new(io::Cursor::new(&bytes[..]))
        .map_err(|error| Failure::Broken(format!("{location}: {error}")))?;
    let mut names: Vec<String> = archive
        .file_names()
        .filter_map(|name| name.ok().map(std::borrow::Cow::into_owned))
        .filter(|name| fits(name.rsplit('/').next().unwrap_or(name)))
        .collect();
    drop(archive);
    if names.is_empty() {
        return Err(Failure::Broken(format!("{location}: there is no file in it this provider knows")));
    }
    names.sort_unstable();
    let bytes = Arc::new(bytes);
    Ok(names.into_iter().map(|name| Part::Member(Arc::clone(&bytes), location.to_owned(), name)).collect())
}

fn text(cursor: &Cursor) -> String {
    serde_json::to_string(cursor).expect("a cursor is plain data")
}

/// Takes the checksum of what passes, and counts it.
struct Hashing<R> {
    input: R,
    hash: Arc<Mutex<Sha256>>,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        if let Ok(mut hash) = self.hash.lock() {
            hash.update(&buffer[..len]);
        }
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}
