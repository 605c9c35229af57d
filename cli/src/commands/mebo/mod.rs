//! `phalanx mebo`: looks into Mebo blobs, and writes them.

mod decode;
mod encode;
mod inspect;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};

/// Reads and writes Mebo blobs, the compressed time series of T-charts.
#[derive(Args)]
pub(crate) struct Mebo {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Inspect(inspect::Inspect),
    Decode(decode::Decode),
    Encode(encode::Encode),
}

impl Mebo {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Inspect(inspect) => inspect.run(),
            Command::Decode(decode) => decode.run(),
            Command::Encode(encode) => encode.run(),
        }
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// A metric's id as it is printed, and read back.
fn id(id: u64) -> String {
    format!("{id:#018x}")
}

/// The id in a text of `0x` and hex digits.
fn parse_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
