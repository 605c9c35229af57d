//! `ledger`: one worker. Start as many as you like.

use anyhow::Result;
use clap::Parser as _;
use phalanx_ledger::{Args, run};

#[tokio::main]
async fn main() -> Result<()> {
    run(Args::parse(), |nats| nats, |_| {}).await
}
