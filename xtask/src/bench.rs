//! `cargo xtask bench`: the benchmarks.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::build_bench;
use crate::workspace::{cargo, output, succeed};

/// The benchmark of the build. It takes long and says nothing about the code, so it runs only by name.
const BUILD: &str = "build";

pub(crate) fn run(name: Option<&str>, profile: &str) -> Result<()> {
    if name == Some(BUILD) {
        return build_bench::run();
    }
    let benches = all()?;
    let names = || benches.iter().map(|(_, bench)| bench.as_str()).collect::<Vec<_>>().join(", ");
    if benches.is_empty() {
        bail!("there is no benchmark yet");
    }
    let wanted: Vec<_> = benches.iter().filter(|(_, bench)| name.is_none_or(|name| name == bench)).collect();
    if wanted.is_empty() {
        bail!("unknown benchmark `{}`; expected one of: {BUILD}, {}", name.unwrap_or_default(), names());
    }
    for (package, bench) in wanted {
        eprintln!("{bench}");
        succeed(&mut cargo(&[
            "bench",
            "--quiet",
            "--profile",
            profile,
            "--package",
            package,
            "--bench",
            bench,
        ]))?;
    }
    Ok(())
}

/// Every benchmark of the workspace, as (package, name).
fn all() -> Result<Vec<(String, String)>> {
    let metadata = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let mut benches = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            if target["kind"][0] == "bench" {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                benches.push((text(&package["name"]), text(&target["name"])));
            }
        }
    }
    Ok(benches)
}
