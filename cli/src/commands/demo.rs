use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;

/// Shows Phalanx at work on this machine, without any server.
///
/// The simulated fab with its live view is not part of this build yet; the demo says what there is instead, and what
/// to try.
#[derive(Args)]
pub(crate) struct Demo {}

const TEXT: &str = "\
Phalanx keeps thousands of units of work spread over a fleet of workers: balanced by weight,
moved as little as possible, recovered within seconds of a crash, untouched by rolling updates.

The live demo (a simulated fab, five defenders, crashes and rolling updates before your eyes)
is not built yet. What works today:

  phalanx plan --synthetic 5000 --from 30 --to 45    what a change of the fleet would move
  phalanx plan --synthetic 5000 --from 30 --crash defender-3
  phalanx spc imr --csv FILE --column X              a control chart of your data, and its signals
  phalanx spc eval 'mean(RF[10s..50s])' --csv FILE   an indicator from traces
  phalanx mebo inspect|decode|encode                 T-chart blobs: look into them, read them, write them
  phalanx etl run asvs --source asvs=FILE            a security feed, parsed, stored, shown by its URN
  phalanx sim --hours 0.1                            a cluster of 30 under every fault, in virtual time
  phalanx fsm worker                                 the life of a worker, as the code has it
  cargo xtask test                                   every test, on real NATS and real Cassandra
";

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        io::stdout().write_all(TEXT.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}
