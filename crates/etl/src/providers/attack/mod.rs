//! MITRE ATT&CK: STIX 2.1 bundles and the XLSX workbooks of the same content.
//!
//! An object may stand in several files: in an older and a newer one of its domain, in two domains, in both formats.
//! It becomes one record: the newest file says what it is, and each domain adds its relationships.

mod bundle;
mod gather;
mod object;
mod workbook;

use serde_json::Value;

use super::Provider;
use crate::record::{Item, Reject, Verdict};
use crate::source::{Collected, Context, Extract, Failure, Source};

/// The provider `attack`.
pub struct Attack;

const DOMAINS: [&str; 3] = ["enterprise", "mobile", "ics"];
const NEWER: &str = "a newer file holds the same object";
const NO_RECORD: &str = "an object that is no record: a collection, an identity, a marking or a matrix";

impl Provider for Attack {
    fn id(&self) -> &'static str {
        "attack"
    }

    fn dependencies(&self) -> &'static [&'static str] {
        &["capec"]
    }

    fn upstream(&self) -> &'static str {
        "https://raw.githubusercontent.com/mitre-attack/attack-stix-data/master"
    }

    fn open(
        &self,
        source: &Source,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Box<dyn Extract>, Failure> {
        Ok(Box::new(Collected::open(source, fits, urls, gather::gather, resume, context)?))
    }

    fn tallies(&self) -> &'static [(&'static str, &'static str)] {
        &[("relationships", "$.relationships")]
    }

    fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
        let item: Value = serde_json::from_slice(&item.raw).map_err(Reject::new)?;
        match item["skip"].as_str() {
            Some(NEWER) => return Ok(Verdict::Skip(NEWER)),
            Some(_) => return Ok(Verdict::Skip(NO_RECORD)),
            None => {}
        }
        Ok(Verdict::Record(Box::new(object::understand(&item)?)))
    }
}

fn fits(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".xlsx")
}

/// A file, or a repository that is laid out like the publisher's.
fn urls(base: &str) -> Vec<String> {
    if fits(base.split('?').next().unwrap_or(base)) {
        return vec![base.to_owned()];
    }
    let base = base.trim_end_matches('/');
    DOMAINS.map(|domain| format!("{base}/{domain}-attack/{domain}-attack.json")).into()
}
