//! The README mentions only what is in the repository.

use std::path::Path;

/// Returns the relative links of a Markdown page, and the paths under `examples/` in its commands.
fn mentioned_paths(page: &str) -> Vec<&str> {
    let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let commands = page.split_whitespace().map(|word| word.trim_start_matches('@'));
    links
        .filter(|link| !link.contains("://"))
        .chain(commands.filter(|word| word.starts_with("examples/")))
        .collect()
}

#[test]
fn every_file_that_the_readme_mentions_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("README.md")).unwrap();
    let paths = mentioned_paths(&page);
    assert!(paths.contains(&"examples/runs/bad.csv") && paths.contains(&"CHANGELOG.md"), "{paths:?}");
    let missing: Vec<_> = paths.into_iter().filter(|path| !root.join(path).exists()).collect();
    assert_eq!(missing, Vec::<&str>::new());
}
