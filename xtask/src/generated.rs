//! Generated files: documentation and protocol code.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use phalanx_settings::{CONNECTIONS, DEFENDER};

use crate::workspace::{cargo, output, root, succeed};

/// A generated file and its expected content.
pub(crate) struct Generated {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

impl Generated {
    /// Returns whether the file has the expected content.
    pub(crate) fn is_current(&self) -> bool {
        fs::read(&self.path).is_ok_and(|content| content == self.content)
    }

    pub(crate) fn write(&self) -> Result<()> {
        fs::write(&self.path, &self.content)
            .with_context(|| format!("could not write {}", self.path.display()))
    }
}

/// Returns every generated file with its expected content. The diagrams need the binary, so a test of it checks them and
/// `cargo xtask check` does not.
pub(crate) fn all() -> Result<Vec<Generated>> {
    let mut files = without_binary()?;
    files.push(Generated { path: root().join("docs/state-machines.md"), content: state_machines()?.into() });
    files.push(with_diagrams("docs/etl.md")?);
    Ok(files)
}

/// Returns the generated files that do not need the binary, with their expected content.
pub(crate) fn without_binary() -> Result<Vec<Generated>> {
    let mut files = protocol()?;
    files.push(with_settings("docs/operations.md")?);
    Ok(files)
}

/// Returns the page with the table of settings below its marker.
fn with_settings(page: &str) -> Result<Generated> {
    let path = root().join(page);
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {page}"))?;
    let table = phalanx_settings::markdown(CONNECTIONS.iter().chain(DEFENDER));
    let content =
        insert_settings(&text, &table).with_context(|| format!("{page} has no line {SETTINGS_MARK}"))?;
    Ok(Generated { path, content: content.into() })
}

const SETTINGS_MARK: &str = "<!-- settings -->";

/// Replaces the table below the marker. Returns `None` without a marker.
fn insert_settings(text: &str, table: &str) -> Option<String> {
    let (before, after) = text.split_once(&format!("{SETTINGS_MARK}\n"))?;
    let rest = after.trim_start_matches('\n');
    let old = rest.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum::<usize>();
    let rest = rest.get(old..).unwrap_or_default().trim_start_matches('\n');
    Some(format!("{before}{SETTINGS_MARK}\n\n{table}\n{rest}"))
}

/// Returns the code of the Election Agent's protocol.
fn protocol() -> Result<Vec<Generated>> {
    let election = root().join("crates/election");
    let scratch = tempfile::tempdir().context("could not create a temporary folder")?;
    let mut generate = cargo(&["run", "--quiet", "--package", "phalanx-proto-codegen", "--"]);
    succeed(generate.arg(election.join("proto")).arg(scratch.path()))?;
    let mut files = Vec::new();
    for entry in fs::read_dir(scratch.path()).context("could not read the generated code")? {
        let entry = entry?;
        let content = fs::read(entry.path()).context("could not read the generated code")?;
        files.push(Generated { path: election.join("src/generated").join(entry.file_name()), content });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
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
        let (table, diagram) = (print(machine, "table")?, diagram(machine)?);
        text.push_str(&format!("\n## {title}\n\n{about}\n\n{table}\n{diagram}"));
    }
    Ok(text)
}

/// The page as it is, with the diagram of `MACHINE` below each line `<!-- diagram: MACHINE -->`.
fn with_diagrams(page: &str) -> Result<Generated> {
    let path = root().join(page);
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {page}"))?;
    Ok(Generated { path, content: fill(&text, diagram)?.into() })
}

fn fill(text: &str, diagram: impl Fn(&str) -> Result<String>) -> Result<String> {
    const MARK: &str = "<!-- diagram: ";
    let mut filled = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        filled.push_str(line);
        filled.push('\n');
        if let Some(machine) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->")) {
            filled.push_str(&diagram(machine)?);
            if lines.next_if(|next| next.starts_with("```mermaid")).is_some() {
                for old in lines.by_ref() {
                    if old == "```" {
                        break;
                    }
                }
            }
        }
    }
    Ok(filled)
}

fn diagram(machine: &str) -> Result<String> {
    Ok(format!("```mermaid\n{}```\n", print(machine, "mermaid")?))
}

fn print(machine: &str, format: &str) -> Result<String> {
    let fsm = ["run", "--quiet", "--package", "phalanx-cli", "--", "fsm", machine, "--format", format];
    output(&mut cargo(&fsm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_replace_the_table_below_their_mark_and_nothing_else() {
        let page = "| kept |\n<!-- settings -->\n\n| old |\n|---|\n\nafter\n| kept |\n";
        let expected = "| kept |\n<!-- settings -->\n\n| new |\n\nafter\n| kept |\n";
        assert_eq!(insert_settings(page, "| new |\n").as_deref(), Some(expected));
        assert_eq!(insert_settings(expected, "| new |\n").as_deref(), Some(expected));
        assert_eq!(insert_settings("a page", "| new |\n"), None);
    }

    #[test]
    fn a_diagram_replaces_the_one_below_its_mark_and_nothing_else() {
        let diagram = |machine: &str| Ok(format!("```mermaid\n{machine}\n```\n"));
        let page = "a\n<!-- diagram: x -->\n```mermaid\nold\n```\nb\n<!-- diagram: y -->\nc\n```mermaid\nkept\n```\n";
        let filled = fill(page, diagram).unwrap();
        assert_eq!(
            filled,
            "a\n<!-- diagram: x -->\n```mermaid\nx\n```\nb\n<!-- diagram: y -->\n```mermaid\ny\n```\nc\n```mermaid\nkept\n```\n"
        );
        assert_eq!(fill(&filled, diagram).unwrap(), filled);
    }
}
