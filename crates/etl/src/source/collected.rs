//! Sources whose records stand in several files at once: all are read before the first record is given.

use std::fs::{self, File};
use std::io::{Cursor as Bytes, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::limit::{Bounded, Limits};
use super::{Context, Done, Extract, Failure, Place, Source, Step, body_failure};
use crate::record::{Item, SourceRef};
use crate::text::hex;

/// Folders are looked into so deep.
const FOLDER_DEPTH_MAX: usize = 3;

/// One file, read whole.
pub(crate) struct Piece {
    /// Its path below the folder that was named, or its address.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    location: String,
    checksum: String,
}

impl Piece {
    /// The last part of its name.
    pub(crate) fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }
}

/// An item, and the piece it stands in.
pub(crate) struct Found {
    pub(crate) piece: usize,
    pub(crate) position: u64,
    pub(crate) raw: Vec<u8>,
}

/// What a provider makes of the pieces.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) items: Vec<Found>,
    /// What is missing, in words.
    pub(crate) gaps: Vec<String>,
}

/// Where to go on.
#[derive(Default, Serialize, Deserialize)]
struct Cursor {
    /// Of all pieces: when one of them is another one, everything is read from the beginning.
    checksum: String,
    index: usize,
}

/// Gives items that were gathered from all pieces.
pub(crate) struct Collected {
    sources: Vec<SourceRef>,
    gathered: Gathered,
    checksum: String,
    index: usize,
}

impl Collected {
    /// Reads the files of `source` whose names `fit`, or what `urls` makes of its address, and gathers their items.
    pub(crate) fn open(
        source: &Source,
        fits: impl Fn(&str) -> bool,
        urls: impl Fn(&str) -> Vec<String>,
        gather: impl FnOnce(&[Piece], Limits) -> Result<Gathered, Failure>,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Self, Failure> {
        let mut pieces = match &source.place {
            Place::Path(path) => read_local(path, fits, context)?,
            Place::Url(url) => {
                let mut pieces = Vec::new();
                for url in urls(url) {
                    let body = context.http.get(&url, &[], context.now)?.body;
                    let shown = super::redact(&url);
                    let name = shown.split('?').next().unwrap_or(&shown);
                    add(&mut pieces, name, &shown, body, &fits, context.limits)
                        .map_err(|error| body_failure(&url, &error))?;
                }
                pieces
            }
        };
        pieces.sort_by(|one, other| one.name.cmp(&other.name));
        let gathered = gather(&pieces, context.limits)?;
        let mut hash = Sha256::new();
        pieces.iter().for_each(|piece| hash.update(format!("{}\n{}\n", piece.name, piece.checksum)));
        let checksum = hex(&hash.finalize());
        let cursor: Cursor = resume.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let index = if cursor.checksum == checksum { cursor.index.min(gathered.items.len()) } else { 0 };
        let source = |piece: Piece| SourceRef {
            location: piece.location,
            checksum: Some(piece.checksum),
            fetched: context.now,
        };
        Ok(Self { sources: pieces.into_iter().map(source).collect(), gathered, checksum, index })
    }

    fn cursor(&self) -> String {
        let cursor = Cursor { checksum: self.checksum.clone(), index: self.index };
        serde_json::to_string(&cursor).expect("a cursor is plain data")
    }
}

impl Extract for Collected {
    fn next(&mut self, max: usize, _now: Duration) -> Result<Step, Failure> {
        let rest = &mut self.gathered.items[self.index..];
        let Some(piece) = rest.first().map(|first| first.piece) else {
            let gaps = &self.gathered.gaps;
            let gaps = (!gaps.is_empty()).then(|| gaps.join("; "));
            return Ok(Step::Done { gaps, cursor: String::new() });
        };
        let same = rest.iter().take(max).take_while(|found| found.piece == piece).count();
        let items = rest[..same]
            .iter_mut()
            .map(|found| Item { position: found.position, raw: std::mem::take(&mut found.raw) })
            .collect();
        self.index += same;
        let page_done = self.gathered.items.get(self.index).is_none_or(|next| next.piece != piece);
        Ok(Step::Items { items, source: self.sources[piece].clone(), cursor: self.cursor(), page_done })
    }

    /// In items.
    fn done(&self) -> Option<Done> {
        Some(Done { done: self.index as u64, total: self.gathered.items.len() as u64 })
    }
}

fn read_local(path: &Path, fits: impl Fn(&str) -> bool, context: &Context) -> Result<Vec<Piece>, Failure> {
    let broken = |path: &Path, error: std::io::Error| Failure::Broken(format!("{}: {error}", path.display()));
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    if fs::metadata(path).map_err(|error| broken(path, error))?.is_dir() {
        list(path, "", 0, &mut files).map_err(|error| broken(path, error))?;
        files.retain(|(name, _)| fits(name) || name.ends_with(".zip"));
    } else {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files.push((name, path.to_owned()));
    }
    let mut pieces = Vec::new();
    let mut left = context.limits.unpacked;
    for (name, file) in files {
        let input = File::open(&file).map_err(|error| broken(&file, error))?;
        let limits = Limits { unpacked: left, ..context.limits };
        let before = pieces.len();
        let location = file.display().to_string();
        add(&mut pieces, &name, &location, Box::new(input), &fits, limits)
            .map_err(|error| broken(&file, error))?;
        left = left.saturating_sub(pieces[before..].iter().map(|piece| piece.bytes.len() as u64).sum());
    }
    if pieces.is_empty() {
        let folder = path.display();
        return Err(Failure::Broken(format!("{folder}: there is no file in it this provider knows")));
    }
    Ok(pieces)
}

/// The files in `folder` and below, each with its path from there.
fn list(
    folder: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<(String, PathBuf)>,
) -> std::io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if path.is_file() {
            files.push((name, path));
        } else if path.is_dir() && depth < FOLDER_DEPTH_MAX {
            list(&path, &format!("{name}/"), depth + 1, files)?;
        }
    }
    Ok(())
}

/// Reads one file, or every file in an archive that fits.
fn add(
    pieces: &mut Vec<Piece>,
    name: &str,
    location: &str,
    input: Box<dyn Read + Send>,
    fits: impl Fn(&str) -> bool,
    limits: Limits,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    Bounded::new(input, limits.unpacked, "it has").read_to_end(&mut bytes)?;
    let checksum = hex(&Sha256::digest(&bytes));
    let mut push = |name: &str, bytes: Vec<u8>| {
        let location = location.to_owned();
        pieces.push(Piece { name: name.to_owned(), bytes, location, checksum: checksum.clone() });
    };
    if let Some(name) = name.strip_suffix(".gz") {
        let unpacked = flate2::read::MultiGzDecoder::new(&bytes[..]);
        let mut whole = Vec::new();
        Bounded::new(unpacked, limits.unpacked, "it unpacks to").read_to_end(&mut whole)?;
        push(name, whole);
    } else if name.ends_with(".zip") {
        let mut archive = zip::ZipArchive::new(Bytes::new(bytes)).map_err(std::io::Error::other)?;
        let mut left = limits.unpacked;
        for index in 0..archive.len() {
            let member = archive.by_index(index).map_err(std::io::Error::other)?;
            let inner = member.name().map_err(std::io::Error::other)?.into_owned();
            if !member.is_file() || !fits(&inner) {
                continue;
            }
            let mut whole = Vec::new();
            Bounded::new(member, left, "it unpacks to").read_to_end(&mut whole)?;
            left -= whole.len() as u64;
            push(&inner, whole);
        }
    } else {
        push(name, bytes);
    }
    Ok(())
}
