//! Dead letters, once more: a newer program may understand what an older one did not.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Error, Options};
use crate::record::{Compressor, Entry, Item};
use crate::store::{Commit, Reader, SourceRef, Writer};

/// What came of trying dead letters again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retried {
    /// Letters that are records now.
    pub understood: u64,
    /// Letters that are letters still.
    pub left: u64,
}

/// Gives every dead letter of `providers` (of all, where that is empty) to its provider once more.
pub fn retry(options: &Options, providers: &[String]) -> Result<Retried, Error> {
    let letters = Reader::open(&options.db)?.dead_letters()?;
    let mut writer = Writer::open(&options.db)?;
    let mut compressor = Compressor::new();
    let mut retried = Retried::default();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for letter in letters {
        if !providers.is_empty() && !providers.contains(&letter.provider) {
            continue;
        }
        let config = options.providers.iter().find(|one| one.id == letter.provider);
        let Some(provider) = config.and_then(super::ProviderConfig::provider) else {
            retried.left += 1;
            continue;
        };
        let item = Item { position: letter.position.unsigned_abs(), raw: letter.raw.into_bytes() };
        let verdict = provider.understand(&item);
        if verdict.is_err() {
            retried.left += 1;
            continue;
        }
        // Of the same run and source: that is where it came from.
        writer.commit(&[Commit {
            provider: letter.provider,
            run_id: letter.run_id,
            at,
            source: Some(SourceRef { location: letter.source, checksum: None, fetched: at }),
            entries: vec![Entry::new(&item, verdict, &mut compressor)],
            ..Commit::default()
        }])?;
        writer.forget_dead_letter(letter.id)?;
        retried.understood += 1;
    }
    Ok(retried)
}
