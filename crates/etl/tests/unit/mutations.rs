//! Files that were cut, changed, or shuffled: parsers give what they can and never panic or run for ever.

use crate::util;
use std::fs;
use std::path::Path;
use std::time::Duration;

use phalanx_etl::providers::{Asvs, Attack, Capec, Cce, Cve, Cwe, Provider, Ssg};
use phalanx_etl::source::{Context, Http, Limits, Source, Step, Timeouts};
use phalanx_etl::{Item, Verdict};
use phalanx_testkit::shared;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// One thing that happens to a file. Places are parts of its length, in 1/65536.
#[derive(Clone, Debug)]
enum Mutation {
    Set(u16, u8),
    Insert(u16, Vec<u8>),
    Remove(u16, u8),
    /// A piece stands again elsewhere.
    Copy(u16, u16, u8),
    Truncate(u16),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        let at = |part: u16| usize::from(part) * len / 65_536;
        match self {
            Self::Set(part, byte) => {
                if let Some(place) = bytes.get_mut(at(*part)) {
                    *place = *byte;
                }
            }
            Self::Insert(part, more) => drop(bytes.splice(at(*part)..at(*part), more.iter().copied())),
            Self::Remove(part, count) => {
                let end = (at(*part) + usize::from(*count)).min(len);
                bytes.drain(at(*part)..end);
            }
            Self::Copy(from, to, count) => {
                let end = (at(*from) + usize::from(*count)).min(len);
                let piece = bytes[at(*from)..end].to_vec();
                drop(bytes.splice(at(*to)..at(*to), piece));
            }
            Self::Truncate(part) => bytes.truncate(at(*part)),
        }
    }
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let special = prop_oneof![prop::sample::select(&b"\"\\{}[],:\n\0\xFF\xC3"[..]), any::<u8>()];
    let one = prop_oneof![
        4 => (any::<u16>(), special.clone()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        2 => (any::<u16>(), prop::collection::vec(special, 1..8)).prop_map(|(at, more)| Mutation::Insert(at, more)),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(at, count)| Mutation::Remove(at, count)),
        2 => (any::<u16>(), any::<u16>(), any::<u8>()).prop_map(|(a, b, count)| Mutation::Copy(a, b, count)),
        1 => any::<u16>().prop_map(Mutation::Truncate),
    ];
    prop::collection::vec(one, 1..6)
}

/// Reads the whole file as the engine does, and says how many records and rejects were in it.
fn read(provider: &dyn Provider, file: &Path) -> (usize, usize) {
    let limits = Limits::default();
    let http = Http::new(Timeouts::default(), limits);
    let context = Context { http, limits, now: Duration::ZERO, credential: None };
    let source = Source::parse(&file.display().to_string(), None);
    let (mut records, mut rejects) = (0, 0);
    let Ok(mut extract) = provider.open(&source, None, &context) else { return (0, 0) };
    while let Ok(Step::Items { items, .. }) = extract.next(100, Duration::ZERO) {
        for item in items {
            match provider.understand(&item) {
                Ok(Verdict::Record(_)) => records += 1,
                Ok(Verdict::Skip(_)) => {}
                Err(_) => rejects += 1,
            }
        }
    }
    (records, rejects)
}

/// Mutates `original` in `cases` ways. Whatever happens to it, it holds no more items than bytes can make.
fn survives(provider: &dyn Provider, name: &str, original: &[u8], cases: u32) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let file = dir.path().join(name);
    fs::write(&file, original).expect("the file can be written");
    let (whole, rejects) = read(provider, &file);
    assert!(whole > 0 && rejects == 0, "{name} is sound before it is mutated");
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&mutations(), |mutations| {
            let mut bytes = original.to_vec();
            mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
            fs::write(&file, &bytes).expect("the file can be written");
            let (records, rejects) = read(provider, &file);
            // A piece that was copied may hold records; nothing else makes more of them.
            prop_assert!(records + rejects <= whole + 5 * 256);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn a_cve_feed_survives_whatever_happens_to_it() {
    let records: Vec<_> = (0..30).map(util::cve).collect();
    survives(&Cve, "nvdcve-2.0-2024.json", util::page_of(0, 30, &records, 30).as_bytes(), 300);
    let Some(page) = shared("fixtures/feeds/nvd/api2-full-page-38.json") else { return };
    survives(&Cve, "page.json", &fs::read(page).unwrap(), 100);
}

#[test]
fn one_changed_byte_costs_a_feed_no_other_record() {
    let records: Vec<_> = (0..30).map(util::cve).collect();
    let text = util::page_of(0, 30, &records, 30);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("feed.json");
    let at = text.find("CVE-2024-10015").unwrap();
    fs::write(&file, format!("{}x{}", &text[..at], &text[at + 1..])).unwrap();
    assert_eq!(read(&Cve, &file), (29, 1));
}

#[test]
fn an_asvs_table_survives_whatever_happens_to_it() {
    let Some(feeds) = shared("fixtures/feeds/asvs") else { return };
    for version in ["4.0.3", "5.0.0"] {
        let name = format!("asvs-{version}-en.csv");
        survives(&Asvs, &name, &fs::read(feeds.join(&name)).unwrap(), 150);
    }
}

#[test]
fn catalogues_survive_whatever_happens_to_them() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let files: [(&dyn Provider, &str); 8] = [
        (&Attack, "feeds/attack/enterprise-attack-1.0.json"),
        (&Attack, "attack-workbook/enterprise-attack-v1.0.xlsx"),
        (&Capec, "feeds/capec/capec_v1.0.xml"),
        (&Cce, "feeds/cce/cce-COMBINED-1.xlsx"),
        (&Cce, "feeds/cce/cce_csv/stable.csv"),
        (&Cwe, "feeds/cwe/W/10.json"),
        (&Cwe, "cwe-catalogue/cwec_v1.0.xml"),
        (&Ssg, "feeds/ssg/ssg-shed-ds.xml"),
    ];
    for (provider, file) in files {
        let name = file.rsplit('/').next().unwrap();
        survives(provider, name, &fs::read(fixtures.join(file)).unwrap(), 150);
    }
}

#[test]
fn a_row_that_is_not_utf_8_is_rejected_with_its_very_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("asvs-5.0.0-en.csv");
    let mut text = b"chapter_id,chapter_name,section_id,section_name,req_id,req_description,L\n".to_vec();
    text.extend(b"V1,E,V1.1,A,V1.1.1,Verif\xFF it.,2\nV1,E,V1.1,A,V1.1.2,Verify that.,2\n");
    fs::write(&file, text).unwrap();
    assert_eq!(read(&Asvs, &file), (1, 1));
    let raw = br#"{"version":"5.0.0","row":{"req_description":[86,101,255]}}"#.to_vec();
    let rejected = Asvs.understand(&Item { position: 0, raw }).unwrap_err();
    assert_eq!(rejected.0, "its column `req_description` is not UTF-8");
}
