//! `phalanx etl path`: from a vulnerability to the techniques it lends itself to.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use phalanx_etl::store::{Goal, Reader, Stop};
use phalanx_etl::{Urn, lookup};
use serde_json::json;

use super::{Common, print};

/// Walks CVE → CWE → CAPEC → ATT&CK, or back, and shows all shortest paths as a tree.
///
/// Where nothing leads on directly, the way goes over what a weakness or pattern is a special case of.
/// The exit code is 1 when there is no path; then it says where the way ends.
#[derive(Args)]
pub(super) struct Path {
    /// Where to begin: an id such as CVE-2023-27314 or CWE-79, or a URN.
    from: String,

    /// Where to go: a kind (cve, cwe, capec, attack), an id or a URN.
    to: String,

    #[command(flatten)]
    common: Common,
}

impl Path {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let from = Urn::guess(&self.from)?;
        let path = lookup::path();
        let kinds: Vec<&str> = path.iter().map(|step| step.kind).collect();
        let goal = if kinds.contains(&self.to.as_str()) {
            Goal::Kind(self.to.clone())
        } else {
            let to = Urn::guess(&self.to).with_context(|| format!("a path leads to {}", kinds.join(", ")))?;
            Goal::Record(to)
        };
        let reader = Reader::open(&self.common.db)?;
        if lookup::record(&reader, &from)?.is_none() {
            bail!("{from} is not in {}", self.common.db.display());
        }
        let Some(paths) = reader.paths(&path, &from, &goal)? else {
            bail!("a path goes through {}; {from} is none of these", kinds.join(", "));
        };
        if self.common.json {
            print(json!(paths))?;
        } else {
            if let Some(tree) = &paths.tree {
                draw(tree, "", "", true)?;
                print(format_args!("{} paths of {} steps", paths.count, paths.steps))?;
            } else {
                print(format_args!("there is no path from {from} to {}", self.to))?;
            }
            for end in &paths.ends {
                print(format_args!("ends at {}: {}", end.urn, end.why))?;
            }
        }
        Ok(if paths.tree.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn draw(stop: &Stop, indent: &str, branch: &str, is_root: bool) -> anyhow::Result<()> {
    let id = stop.urn.rsplit("::").next().unwrap_or(&stop.urn);
    let by = if stop.by.is_empty() { String::new() } else { format!("{}: ", stop.by.replace('_', " ")) };
    let title = stop.title.as_deref().unwrap_or("(not loaded)");
    print(format_args!("{indent}{branch}{by}{id} {title}"))?;
    let below = match (is_root, branch) {
        (true, _) => String::new(),
        (false, "└─ ") => format!("{indent}   "),
        (false, _) => format!("{indent}│  "),
    };
    for (at, next) in stop.next.iter().enumerate() {
        let last = at + 1 == stop.next.len();
        draw(next, &below, if last { "└─ " } else { "├─ " }, false)?;
    }
    Ok(())
}
