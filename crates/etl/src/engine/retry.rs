//! Dead letters, once more: a newer program may understand what an older one did not.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Error, Options};
use crate::core::{Outcome, registry};
use crate::record::{Compressor, Entry, Item};
use crate::store::{Commit, Letter, Reader, RunRow, Writer};

/// Gives every dead letter of `providers` (of all, where that is empty) to its provider once more.
///
/// This is a run of its own for each provider that has letters; the run that left a letter keeps its counters. Each
/// letter is one transaction: it becomes a record and is gone, or it stays with the reason as it is today.
pub fn retry(options: &Options, providers: &[String]) -> Result<Vec<RunRow>, Error> {
    let known = |id: &str| options.providers.iter().find(|one| one.id == id);
    if let Some(unknown) = providers.iter().find(|id| known(id).is_none()) {
        let known: Vec<_> = options.providers.iter().map(|one| one.id.as_str()).collect();
        return Err(registry::Error::Unknown { id: unknown.clone(), known: known.join(", ") }.into());
    }
    // Without a file there is nothing to try; a writer would make one.
    Reader::open(&options.db)?;
    let mut writer = Writer::open(&options.db)?;
    let mut letters: BTreeMap<String, Vec<Letter>> = BTreeMap::new();
    for letter in writer.letters()? {
        if providers.is_empty() || providers.contains(&letter.provider) {
            letters.entry(letter.provider.clone()).or_default().push(letter);
        }
    }
    let mut run_ids = Vec::new();
    for (id, letters) in letters {
        if let Some(provider) = known(&id).and_then(super::ProviderConfig::provider) {
            let run_id = writer.begin_retry(&id, now())?;
            let commit =
                || Commit { provider: id.clone(), run_id: run_id.clone(), at: now(), ..Commit::default() };
            let mut compressor = Compressor::new();
            for letter in letters {
                let item = Item { position: letter.position.unsigned_abs(), raw: letter.raw };
                let verdict = provider.understand(&item);
                let understood = verdict.is_ok();
                let mut batch = writer.batch()?;
                batch.add(&Commit {
                    source: Some(letter.source),
                    entries: vec![Entry::new(&item, verdict, &mut compressor)],
                    ..commit()
                })?;
                if understood {
                    batch.forget_dead_letter(letter.id)?;
                }
                batch.commit()?;
            }
            let ended = Some((Outcome::Completed, "every letter was tried".to_owned()));
            writer.commit(&[Commit { ended, ..commit() }])?;
            run_ids.push(run_id);
        }
    }
    let mut runs = Reader::open(&options.db)?.runs()?;
    runs.retain(|run| run_ids.contains(&run.run_id));
    Ok(runs)
}

fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
