//! What a writer must know before it goes on: runs under way, cursors, dead letters.

use std::time::Duration;

use phalanx_fsm::State as _;
use rusqlite::OptionalExtension as _;

use super::write::{Writer, unpack};
use super::{Error, rows};
use crate::ProviderState;
use crate::core::provider::Saved;
use crate::record::SourceRef;

/// A dead letter with its very bytes.
pub(crate) struct Letter {
    pub(crate) id: i64,
    pub(crate) provider: String,
    pub(crate) position: i64,
    pub(crate) raw: Vec<u8>,
    pub(crate) source: SourceRef,
}

/// What a run that was under way when the process ended left behind.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    pub(crate) run_id: String,
    pub(crate) source: String,
    pub(crate) saved: Saved,
}

impl Writer {
    /// What of `provider` goes on after a restart, if anything does.
    pub(crate) fn unfinished(&self, provider: &str) -> Result<Option<Unfinished>, Error> {
        Ok(self
            .connection()
            .query_row(
                "SELECT p.*, r.source FROM providers p JOIN runs r ON r.id = p.run_id
                 WHERE p.id = ?1 AND r.ended_ms IS NULL",
                [provider],
                |row| {
                    let state: String = row.get("state")?;
                    let deadline: Option<i64> = row.get("deadline_ms")?;
                    Ok(Unfinished {
                        run_id: row.get("run_id")?,
                        source: row.get("source")?,
                        saved: Saved {
                            // A state nobody knows can only come from another hand; begin the run anew.
                            state: ProviderState::from_name(&state).unwrap_or(ProviderState::Idle),
                            failures: row.get("failures")?,
                            deadline: deadline.map(|ms| Duration::from_millis(ms.unsigned_abs())),
                            pause_wish: row.get("pause_wish")?,
                            processed: row.get::<_, i64>("processed_count")?.unsigned_abs(),
                            errors: row.get::<_, i64>("error_count")?.unsigned_abs(),
                            last_checkpoint: row.get("last_checkpoint")?,
                        },
                    })
                },
            )
            .optional()?)
    }

    /// Where the next read of that source goes on.
    pub(crate) fn cursor(&self, provider: &str, source: &str) -> Result<Option<String>, Error> {
        Ok(self
            .connection()
            .query_row(
                "SELECT cursor FROM cursors WHERE provider = ?1 AND source = ?2",
                [provider, source],
                |row| row.get(0),
            )
            .optional()?)
    }

    /// Every dead letter, oldest first.
    pub(crate) fn letters(&self) -> Result<Vec<Letter>, Error> {
        let letters = rows(
            self.connection(),
            "SELECT d.id, d.provider, d.position, d.raw, s.location, s.checksum, s.fetched_ms FROM dead_letters d
             LEFT JOIN sources s ON s.id = d.source_id ORDER BY d.id",
            [],
            |row| {
                let fetched: Option<i64> = row.get("fetched_ms")?;
                Ok(Letter {
                    id: row.get("id")?,
                    provider: row.get("provider")?,
                    position: row.get("position")?,
                    raw: row.get("raw")?,
                    source: SourceRef {
                        location: row.get::<_, Option<String>>("location")?.unwrap_or_default(),
                        checksum: row.get("checksum")?,
                        fetched: Duration::from_millis(fetched.unwrap_or_default().unsigned_abs()),
                    },
                })
            },
        )?;
        letters
            .into_iter()
            .map(|letter| Ok(Letter { raw: unpack(&letter.raw, "a dead letter")?, ..letter }))
            .collect()
    }
}
