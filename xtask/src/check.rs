//! `check` looks and writes nothing; `fix` writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::generated;
use crate::workspace::{cargo, output, root, succeed};

/// A check: what it is called, and how it is made.
type Step = (&'static str, fn() -> Result<()>);

/// Runs every check, also after one has failed, so that one run shows all there is to mend.
pub(crate) fn check() -> Result<()> {
    let steps: [Step; 8] = [
        ("format", || succeed(&mut cargo(&["fmt", "--all", "--check"]))),
        ("lints", || {
            succeed(&mut cargo(&[
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--",
                "--deny",
                "warnings",
            ]))
        }),
        ("docs", || {
            succeed(
                cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"])
                    .env("RUSTDOCFLAGS", "--deny warnings"),
            )
        }),
        ("generated files", generated_files_are_current),
        ("dependencies", dependencies_are_used),
        ("the shipped binary", every_rule_is_kept),
        ("the pure core", core_has_no_other_dependencies),
        ("neutral words", library_is_neutral),
    ];
    let mut failed = Vec::new();
    for (name, step) in steps {
        eprintln!("checking {name}");
        if let Err(error) = step() {
            eprintln!("  {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("to mend: {}", failed.join(", "));
    }
    println!("all checks passed");
    Ok(())
}

/// Formats the code and writes the generated files.
pub(crate) fn fix() -> Result<()> {
    succeed(&mut cargo(&["fmt", "--all"]))?;
    for file in generated::all()? {
        if !file.is_current() {
            file.write()?;
            println!("wrote {}", file.path.display());
        }
    }
    Ok(())
}

fn generated_files_are_current() -> Result<()> {
    let stale: Vec<_> = generated::without_binary()?
        .into_iter()
        .filter(|file| !file.is_current())
        .map(|file| file.path.strip_prefix(root()).unwrap_or(&file.path).display().to_string())
        .collect();
    if !stale.is_empty() {
        bail!("stale: {}; run `cargo xtask fix`", stale.join(", "));
    }
    Ok(())
}

/// The binary, built alone, cannot work without a rule of the protocol: only tests and examples can.
fn every_rule_is_kept() -> Result<()> {
    let tree = output(&mut cargo(&[
        "tree",
        "--package",
        "phalanx-cli",
        "--edges",
        "normal,build,features",
        "--invert",
        "phalanx-cluster-core",
    ]))?;
    if tree.contains("\"mutants\"") {
        bail!("a normal dependency turns on the feature `mutants` of phalanx-cluster-core (docs/adr/0007)");
    }
    Ok(())
}

/// The deciding part depends on the state machines and a hash function, and on nothing else.
fn core_has_no_other_dependencies() -> Result<()> {
    let tree = output(&mut cargo(&[
        "tree",
        "--package",
        "phalanx-cluster-core",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))?;
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let expected = BTreeSet::from(["phalanx-cluster-core", "phalanx-fsm", "xxhash-rust"]);
    if names != expected {
        bail!("phalanx-cluster-core depends on {names:?}, expected {expected:?}");
    }
    Ok(())
}

/// The crates that serve every application.
const NEUTRAL: [&str; 5] = ["cluster-core", "cluster", "cluster-nats", "sim", "election"];
/// Words that belong to one application.
const WORDS: [&str; 6] = ["chamber", "defender", "chart", "alarm", "toolid", "tool_id"];

/// The library speaks of partitions, workers and messages: no line of it contains a word of one application.
fn library_is_neutral() -> Result<()> {
    let mut found = Vec::new();
    for name in NEUTRAL {
        for path in text_files(&root().join("crates").join(name))? {
            let text =
                fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
            let shown = path.strip_prefix(root()).unwrap_or(&path).display();
            let lines = text.lines().enumerate().filter(|(_, line)| !is_neutral(line));
            found.extend(lines.map(|(number, line)| format!("{shown}:{}: {}", number + 1, line.trim())));
        }
    }
    if !found.is_empty() {
        bail!("words of one application in the library:\n  {}", found.join("\n  "));
    }
    Ok(())
}

fn is_neutral(line: &str) -> bool {
    let line = line.to_lowercase();
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let has_subject =
        line.match_indices("dc.").any(|(at, _)| !line[..at].chars().next_back().is_some_and(is_word));
    !has_subject && !WORDS.iter().any(|word| line.contains(word))
}

/// Returns every source file, manifest, page and list below a folder.
fn text_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("could not read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(text_files(&path)?);
        } else if path
            .extension()
            .is_some_and(|kind| ["rs", "toml", "md", "txt", "proto"].iter().any(|known| kind == *known))
        {
            files.push(path);
        }
    }
    Ok(files)
}

/// A dependency whose name stands in no source file of the crate is not used.
fn dependencies_are_used() -> Result<()> {
    let metadata = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let mut unused = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let mut source = String::new();
        collect_source(Path::new(manifest).parent().context("a package without a folder")?, &mut source)?;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let name = dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap_or_default();
            if !source.contains(&name.replace('-', "_")) {
                unused.push(format!("{name} in {}", package["name"].as_str().unwrap_or_default()));
            }
        }
    }
    if !unused.is_empty() {
        bail!("unused: {}", unused.join(", "));
    }
    Ok(())
}

fn collect_source(dir: &Path, source: &mut String) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("could not read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            collect_source(&path, source)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            source.push_str(
                &fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?,
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_application_are_found_in_any_case_and_within_names() {
        for bad in
            ["a Chamber", "DefenderInfo", "the chart state", "alarms", "toolId", "tool_id", "\"dc.*.*\""]
        {
            assert!(!is_neutral(bad), "{bad}");
        }
        for good in ["partition", "abcdc.rs", "_dc.x", "a worker and its messages"] {
            assert!(is_neutral(good), "{good}");
        }
    }
}
