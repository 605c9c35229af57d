//! Files written by the code itself, so that they cannot drift from it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::workspace::{cargo, output, root};

/// A generated file and what it should hold.
pub(crate) struct Generated {
    pub(crate) path: PathBuf,
    pub(crate) content: String,
}

impl Generated {
    pub(crate) fn is_fresh(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|content| content == self.content)
    }

    pub(crate) fn write(&self) -> Result<()> {
        fs::write(&self.path, &self.content)
            .with_context(|| format!("could not write {}", self.path.display()))
    }
}

/// Every generated file, as it should be now.
pub(crate) fn all() -> Result<Vec<Generated>> {
    Ok(vec![Generated { path: root().join("docs/state-machines.md"), content: state_machines()? }])
}

const MACHINES: [(&str, &str, &str); 4] = [
    ("worker", "Worker", "The life of one worker. The code is the value of the `defender_state` gauge."),
    ("calculator", "Calculator", "What the leader's calculator is doing."),
    ("macro", "Macro", "The orchestrator of the ETL engine."),
    ("provider", "Provider", "One provider of the ETL engine, for one run."),
];

fn state_machines() -> Result<String> {
    let mut text = String::from(
        "# State machines\n\n\
         Written by `cargo xtask fix` from the declarations in the code; `phalanx fsm` prints the same.\n",
    );
    for (machine, title, about) in MACHINES {
        let print = |format| {
            output(&mut cargo(&[
                "run",
                "--quiet",
                "--package",
                "phalanx-cli",
                "--",
                "fsm",
                machine,
                "--format",
                format,
            ]))
        };
        let (table, diagram) = (print("table")?, print("mermaid")?);
        text.push_str(&format!("\n## {title}\n\n{about}\n\n{table}\n```mermaid\n{diagram}```\n"));
    }
    Ok(text)
}
