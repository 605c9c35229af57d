//! A run goes to a running defender.

use std::time::Instant;

use serde_json::Value;

use super::{INGEST_TIMEOUT, POLL_INTERVAL, PreparedRun};
use crate::client::{Client, path, query};

/// Hands the run in, and waits for what becomes of it.
pub(super) fn process(client: &Client, run: &PreparedRun) -> anyhow::Result<Value> {
    let (tool, chamber) = (run.chamber.tool(), run.chamber.chamber());
    let submit = query(
        "/api/v1/contexts",
        &[
            ("tool", Some(tool.to_owned())),
            ("chamber", Some(chamber.to_owned())),
            ("context", Some(run.context.clone())),
            ("timestamp", Some(run.timestamp.to_string())),
        ],
    );
    let taken = match &run.traces[..] {
        [blob] => client.send(&submit, "application/octet-stream", blob.to_vec())?,
        // What is too large for one blob is sent as it is: the service divides it.
        _ => client.send(&submit, run.kind, run.file.to_vec())?,
    };
    let sequence = taken["sequence"].as_u64().map(|sequence| sequence.to_string());
    let look = query(&path("/api/v1/contexts", &[tool, chamber, &run.context]), &[("sequence", sequence)]);
    let deadline = Instant::now() + INGEST_TIMEOUT;
    loop {
        if let Some(report) = client.find(&look)? {
            return Ok(report);
        }
        if Instant::now() > deadline {
            return Err(run.timeout_error());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
