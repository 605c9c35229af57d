//! CAPEC: the XML catalogue of attack patterns.

use serde_json::json;

use super::catalog::{self, paragraphs, texts};
use super::element::Element;
use super::{PathLink, Provider};
use crate::record::{Item, Link, Record, Reject, Verdict};
use crate::source::{Context, Extract, Failure, Files, Layout, OpenRows, Source, XmlItems};
use crate::{Urn, text};

/// The provider `capec`.
pub struct Capec;

const LAYOUT: Layout = Layout {
    root: "Attack_Pattern_Catalog",
    items: &["Attack_Pattern", "Category", "View", "External_Reference"],
    what: "a CAPEC catalogue",
};

impl Provider for Capec {
    fn id(&self) -> &'static str {
        "capec"
    }

    fn dependencies(&self) -> &'static [&'static str] {
        &["cwe"]
    }

    fn upstream(&self) -> &'static str {
        "https://capec.mitre.org/data/xml/capec_latest.xml"
    }

    fn open(
        &self,
        source: &Source,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Box<dyn Extract>, Failure> {
        let open_rows: OpenRows = Box::new(|input, _| Ok(Box::new(XmlItems::new(input, LAYOUT, Vec::new()))));
        Ok(Box::new(Files::open(source, is_catalogue, open_rows, resume, context)?))
    }

    fn path_link(&self) -> Option<PathLink> {
        Some(PathLink { to: "attack", names: "technique", named_by: Some("attack_pattern") })
    }

    fn tallies(&self) -> &'static [(&'static str, &'static str)] {
        &[("ATT&CK mappings", "$.attack")]
    }

    fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
        let item = Element::parse(&item.raw)?;
        let entry = item.elements().next().ok_or_else(|| Reject("it is empty".to_owned()))?;
        let record = match entry.name.as_str() {
            "External_Reference" => catalog::reference(entry, "capec")?,
            "Attack_Pattern" => pattern(entry)?,
            "Category" => group(entry, "category", "Summary", "Relationships")?,
            "View" => group(entry, "view", "Objective", "Members")?,
            other => return Err(Reject(format!("<{other}> is nothing we know"))),
        };
        Ok(Verdict::Record(Box::new(record)))
    }
}

fn is_catalogue(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".xml") || name.ends_with(".xml.gz")
}

fn pattern(entry: &Element) -> Result<Record, Reject> {
    // A few patterns have an empty description; none has none.
    if entry.child("Description").is_none() {
        return Err(Reject(format!("CAPEC-{} has no description", entry.required("ID")?)));
    }
    let (references, mut links) = catalog::references(entry, "capec")?;
    let mut weaknesses = Vec::new();
    for one in entry.list("Related_Weaknesses", "Related_Weakness") {
        let link = catalog::link("weakness", "cwe", "CWE-", one.required("CWE_ID")?)?;
        weaknesses.push(link.to.id().to_owned());
        links.push(link);
    }
    let mut related = Vec::new();
    for one in entry.list("Related_Attack_Patterns", "Related_Attack_Pattern") {
        let nature = one.required("Nature")?;
        let link = catalog::link(catalog::nature(nature), "capec", "CAPEC-", one.required("CAPEC_ID")?)?;
        let excluded: Vec<_> =
            one.children("Exclude_Related").filter_map(|one| one.attribute("Exclude_ID")).collect();
        related.push(json!({"nature": nature, "id": link.to.id(), "except_in": excluded}));
        links.push(link);
    }
    let attack = attack(entry, &mut links)?;
    let steps: Vec<_> = entry
        .list("Execution_Flow", "Attack_Step")
        .map(|step| {
            json!({"step": step.text_of("Step"), "phase": step.text_of("Phase"),
                "description": step.text_of("Description"), "techniques": catalog::all(step, "Technique")})
        })
        .collect();
    let skills: Vec<_> = entry
        .list("Skills_Required", "Skill")
        .map(|skill| json!({"level": skill.attribute("Level"), "skill": skill.text()}))
        .collect();
    let details = json!({
        "abstraction": entry.attribute("Abstraction"),
        "likelihood": entry.text_of("Likelihood_Of_Attack"),
        "terms": entry.list("Alternate_Terms", "Alternate_Term").filter_map(|one| one.text_of("Term")).collect::<Vec<_>>(),
        "execution_flow": steps,
        "prerequisites": texts(entry, "Prerequisites", "Prerequisite"),
        "skills": skills,
        "resources": texts(entry, "Resources_Required", "Resource"),
        "indicators": texts(entry, "Indicators", "Indicator"),
        "consequences": catalog::consequences(entry, "Consequences"),
        "mitigations": texts(entry, "Mitigations", "Mitigation"),
        "examples": texts(entry, "Example_Instances", "Example"),
        "related": related,
        "weaknesses": weaknesses,
        "attack": attack,
        "taxonomies": catalog::taxonomies(entry),
        "references": references,
        "notes": texts(entry, "Notes", "Note"),
    });
    let text = paragraphs(&[entry.text_of("Description"), entry.text_of("Extended_Description")]);
    finish(entry, "pattern", text, entry.text_of("Typical_Severity"), details, links)
}

/// A category or a view: a name for several others.
fn group(entry: &Element, subtype: &'static str, text: &str, members: &str) -> Result<Record, Reject> {
    let (references, mut links) = catalog::references(entry, "capec")?;
    for one in entry.list(members, "Has_Member") {
        links.push(catalog::link("has_member", "capec", "CAPEC-", one.required("CAPEC_ID")?)?);
    }
    let attack = attack(entry, &mut links)?;
    let details = json!({
        "type": entry.attribute("Type"),
        "filter": entry.text_of("Filter"),
        "attack": attack,
        "taxonomies": catalog::taxonomies(entry),
        "references": references,
        "notes": texts(entry, "Notes", "Note"),
    });
    finish(entry, subtype, entry.text_of(text).unwrap_or_default(), None, details, links)
}

/// The techniques of ATT&CK it is mapped to; upstream leaves the T out.
fn attack(entry: &Element, links: &mut Vec<Link>) -> Result<Vec<serde_json::Value>, Reject> {
    let mut mapped = Vec::new();
    for one in entry.list("Taxonomy_Mappings", "Taxonomy_Mapping") {
        if one.attribute("Taxonomy_Name") != Some("ATTACK") {
            continue;
        }
        let id = one.text_of("Entry_ID").ok_or_else(|| Reject("an ATT&CK mapping has no id".to_owned()))?;
        let id = format!("T{}", id.trim().trim_start_matches('T'));
        let digits =
            id[1..].split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        if !digits {
            return Err(Reject(format!("`{id}` is not the id of an ATT&CK technique, such as T1574.010")));
        }
        links.push(Link { kind: "technique", to: Urn::new("attack", &id).map_err(Reject::new)? });
        mapped.push(json!({"id": id, "name": one.text_of("Entry_Name")}));
    }
    Ok(mapped)
}

fn finish(
    entry: &Element,
    subtype: &'static str,
    text: String,
    severity: Option<String>,
    details: serde_json::Value,
    links: Vec<Link>,
) -> Result<Record, Reject> {
    let (published, modified) = catalog::dates(entry);
    Ok(Record {
        urn: catalog::urn("capec", "CAPEC-", entry.required("ID")?)?,
        subtype,
        title: text::headline(entry.required("Name")?, 200),
        text,
        published,
        modified,
        status: entry.attribute("Status").map(str::to_owned),
        severity,
        details: details.to_string(),
        links: catalog::tidy(links),
    })
}
