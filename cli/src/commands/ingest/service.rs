//! A run goes to a running defender.

use std::time::Instant;

use serde_json::Value;

use super::{LIMIT, LOOK, Sent};
use crate::client::{Client, path, query};

/// Hands the run in, and waits for what becomes of it.
pub(super) fn process(client: &Client, sent: &Sent) -> anyhow::Result<Value> {
    let (tool, chamber) = (sent.chamber.tool(), sent.chamber.chamber());
    let submit = query(
        "/api/v1/contexts",
        &[
            ("tool", Some(tool.to_owned())),
            ("chamber", Some(chamber.to_owned())),
            ("context", Some(sent.context.clone())),
            ("timestamp", Some(sent.timestamp.to_string())),
        ],
    );
    let taken = match &sent.chunks[..] {
        [blob] => client.send(&submit, "application/octet-stream", blob.to_vec())?,
        // What is too large for one blob is sent as it is: the service divides it.
        _ => client.send(&submit, sent.kind, sent.file.to_vec())?,
    };
    let sequence = taken["sequence"].as_u64().map(|sequence| sequence.to_string());
    let look = query(&path("/api/v1/contexts", &[tool, chamber, &sent.context]), &[("sequence", sequence)]);
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(report) = client.find(&look)? {
            return Ok(report);
        }
        if Instant::now() > deadline {
            return Err(sent.late());
        }
        std::thread::sleep(LOOK);
    }
}
