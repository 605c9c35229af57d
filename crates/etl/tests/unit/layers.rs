//! The layers of the crate: a module uses only modules below it, and only providers know providers.

use std::fs;
use std::path::{Path, PathBuf};

/// Each module with the modules above it, which it never uses.
const LAYERS: [(&str, &[&str]); 4] = [
    ("core", &["source", "store", "providers", "lookup", "engine"]),
    ("source", &["store", "providers", "lookup", "engine"]),
    ("store", &["source", "providers", "lookup", "engine"]),
    ("providers", &["store", "lookup", "engine"]),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if !path.to_string_lossy().ends_with("_test.rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the code of a file without comments and tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source file");
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn no_module_uses_a_module_above_it() {
    for (module, above) in LAYERS {
        for file in sources(&src().join(module)) {
            let code = code(&file);
            for upper in above {
                assert!(!code.contains(&format!("crate::{upper}")), "{} uses {upper}", file.display());
            }
        }
    }
}

#[test]
fn only_providers_name_a_provider() {
    for file in sources(&src()) {
        // The URN scheme lists the types that the documents define.
        if file.starts_with(src().join("providers")) || file.ends_with("urn.rs") {
            continue;
        }
        let code = code(&file);
        for id in ["asvs", "attack", "capec", "cce", "cve", "cwe", "ssg"] {
            assert!(!code.contains(&format!("\"{id}\"")), "{} names {id}", file.display());
        }
    }
}
