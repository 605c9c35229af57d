//! What providers make of the items they read.

use std::io::Read as _;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::Urn;

/// One record, ready for the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its name.
    pub urn: Urn,
    /// What it is among the records of its kind: `weakness`, `category`, `technique`, …
    pub subtype: &'static str,
    /// A line for lists.
    pub title: String,
    /// What it says.
    pub text: String,
    /// When it was first published, as the source writes it.
    pub published: Option<String>,
    /// When it was last changed, as the source writes it.
    pub modified: Option<String>,
    /// What the source says of its state.
    pub status: Option<String>,
    /// How bad it is, as the source says.
    pub severity: Option<String>,
    /// What only this kind of record has, as a JSON object.
    pub details: String,
    /// Other records it names.
    pub links: Vec<Link>,
}

/// Where items were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRef {
    /// File or page.
    pub location: String,
    /// SHA-256 in hexadecimal, once the whole was read.
    pub checksum: Option<String>,
    /// When.
    pub fetched: Duration,
}

/// A record names another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// How, such as `weakness`.
    pub kind: &'static str,
    /// Whom.
    pub to: Urn,
}

/// One item as it was read, before anybody understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its place in the file or page, from 0.
    pub position: u64,
    /// Its bytes.
    pub raw: Vec<u8>,
}

/// What an item came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A record.
    Record(Box<Record>),
    /// Something that is rightly no record.
    Skip(&'static str),
}

/// An item that could not be understood. It becomes a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Reject(pub String);

impl Reject {
    /// From whatever says why.
    pub fn new(why: impl ToString) -> Self {
        Self(why.to_string())
    }
}

/// An item with its verdict, its bytes compressed, its hash taken: all the work a writer need not do.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) position: u64,
    pub(crate) hash: [u8; 32],
    pub(crate) raw: Vec<u8>,
    pub(crate) verdict: Result<Verdict, Reject>,
}

impl Entry {
    pub(crate) fn new(item: &Item, verdict: Result<Verdict, Reject>, compressor: &mut Compressor) -> Self {
        Self {
            position: item.position,
            hash: Sha256::digest(&item.raw).into(),
            raw: compressor.compress(&item.raw),
            verdict,
        }
    }

    pub(crate) fn urn(&self) -> Option<&Urn> {
        match &self.verdict {
            Ok(Verdict::Record(record)) => Some(&record.urn),
            _ => None,
        }
    }
}

/// Records are small and many: below level 0 zstd builds no tables for each of them.
const LEVEL: i32 = -1;

/// Raw sources are kept compressed; a context is dear to make and is used again.
pub(crate) struct Compressor(zstd::bulk::Compressor<'static>);

impl Compressor {
    pub(crate) fn new() -> Self {
        Self(zstd::bulk::Compressor::new(LEVEL).expect("every level down to -131072 exists"))
    }

    fn compress(&mut self, raw: &[u8]) -> Vec<u8> {
        self.0.compress(raw).expect("the buffer is sized by zstd itself")
    }
}

/// The most a stored raw source may unfold to.
const RAW_LEN_MAX: u64 = 64 << 20;

pub(crate) fn decompress(raw: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    zstd::stream::read::Decoder::new(raw)?.take(RAW_LEN_MAX).read_to_end(&mut out)?;
    Ok(out)
}
