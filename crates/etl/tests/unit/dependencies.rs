//! What a provider needs starts first, and says so.

use crate::util;
use std::fs;
use std::path::Path;

use phalanx_etl::core::registry::Needed;
use phalanx_etl::engine::{Engine, Options, Summary};
use phalanx_etl::source::Source;

const ASVS: &str = "chapter_id,chapter_name,section_id,section_name,req_id,req_description,L\n\
                    V1,Encoding,V1.1,Architecture,V1.1.1,Verify it.,2\n";

/// The built-in providers, where cve needs asvs; each reads its file in `dir`.
fn options(dir: &Path) -> Options {
    let mut options = Options::new(dir.join("x.db"));
    for provider in &mut options.providers {
        if provider.id == "cve" {
            provider.dependencies = vec!["asvs".to_owned()];
        }
    }
    for (id, file) in [("asvs", "asvs.csv"), ("cve", "cve.json")] {
        let source = Source::parse(&dir.join(file).display().to_string(), None);
        options.sources.insert(id.to_owned(), source);
    }
    options
}

fn run_cve(dir: &Path) -> (Vec<Needed>, Summary) {
    let engine = Engine::new(options(dir)).expect("the set is sound");
    let ids = ["cve".to_owned()];
    let plan = engine.plan(&ids).expect("cve is known");
    (plan, engine.run(&ids, &mut |_| {}).expect("the store can be written"))
}

fn providers(summary: &Summary) -> Vec<&str> {
    summary.runs.iter().map(|run| run.provider.as_str()).collect()
}

#[test]
fn what_is_needed_runs_first_and_not_again_once_it_has_completed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("asvs.csv"), ASVS).unwrap();
    fs::write(dir.path().join("cve.json"), util::page_of(0, 1, &[util::cve(0)], 1)).unwrap();
    let (plan, first) = run_cve(dir.path());
    let needed = |id: &str, by: Option<&str>| Needed { id: id.to_owned(), by: by.map(str::to_owned) };
    assert_eq!(plan, [needed("asvs", Some("cve")), needed("cve", None)]);
    assert_eq!(providers(&first), ["asvs", "cve"]);
    let (plan, second) = run_cve(dir.path());
    assert_eq!((plan.len(), providers(&second)), (1, vec!["cve"]));
}

#[test]
fn who_waits_behind_a_failure_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("asvs.csv"), "no,such,table\n").unwrap();
    fs::write(dir.path().join("cve.json"), util::page_of(0, 1, &[util::cve(0)], 1)).unwrap();
    let (_, summary) = run_cve(dir.path());
    assert_eq!((providers(&summary), summary.blocked.clone()), (vec!["asvs"], vec!["cve".to_owned()]));
}
