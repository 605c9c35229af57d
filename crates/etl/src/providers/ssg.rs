//! SCAP Security Guide: data streams, and plain XCCDF.

use std::collections::BTreeMap;

use serde_json::json;

use super::element::Element;
use super::{Provider, catalog};
use crate::record::{Item, Link, Record, Reject, Verdict};
use crate::source::{Context, Extract, Failure, Files, Layout, OpenRows, Part, Source, XmlItems};
use crate::{Urn, text};

/// The provider `ssg`.
pub struct Ssg;

/// A data stream holds several components; the benchmark is the one we read.
const LAYOUT: Layout = Layout {
    root: "Benchmark",
    items: &["Benchmark", "Profile", "Group", "Rule", "Value"],
    what: "SCAP content",
};

/// How a file's name ends, the best first: where a product has several files, only the best gives records.
const ENDINGS: [&str; 4] = ["-ds.xml", "-ds-1.2.xml", "-xccdf-1.2.xml", "-xccdf.xml"];

impl Provider for Ssg {
    fn id(&self) -> &'static str {
        "ssg"
    }

    fn upstream(&self) -> &'static str {
        "https://github.com/ComplianceAsCode/content/releases/download/v0.1.77/scap-security-guide-0.1.77.zip"
    }

    fn open(
        &self,
        source: &Source,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Box<dyn Extract>, Failure> {
        let parts = Files::list(source, is_content, context)?;
        let locations: Vec<String> = parts.iter().map(Part::location).collect();
        let best = best_files(locations.iter().map(|location| file_name(location)));
        let open_rows: OpenRows = Box::new(move |input, location| {
            let name = file_name(location);
            let product = product(name).map_or_else(|| stem(name), |(product, _)| product).to_owned();
            let mut context = vec![("product", product.clone())];
            if let Some(better) = best.get(&product).filter(|better| *better != name) {
                context.push(("instead", better.clone()));
            }
            Ok(Box::new(XmlItems::new(input, LAYOUT, context)))
        });
        Ok(Box::new(Files::new(parts, open_rows, resume, context.limits)))
    }

    fn tallies(&self) -> &'static [(&'static str, &'static str)] {
        &[("CCE idents", "$.cce"), ("references", "$.references"), ("selections", "$.selections")]
    }

    fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
        let item = Element::parse(&item.raw)?;
        if item.attribute("instead").is_some() {
            return Ok(Verdict::Skip("the product has a better file beside this one"));
        }
        let product = item.required("product")?;
        let entry = item.elements().next().ok_or_else(|| Reject("it is empty".to_owned()))?;
        let record = match entry.name.as_str() {
            "Benchmark" => benchmark(entry, product)?,
            "Profile" => profile(entry, product)?,
            "Group" => group(entry, product, parent_link(&item, product)?)?,
            "Rule" => rule(entry, product, parent_link(&item, product)?)?,
            "Value" => return Ok(Verdict::Skip("a value that checks use, not a rule")),
            other => return Err(Reject(format!("<{other}> is nothing we know"))),
        };
        Ok(Verdict::Record(Box::new(record)))
    }
}

fn file_name(location: &str) -> &str {
    let address = location.split('?').next().unwrap_or(location);
    address.rsplit(['/', '\\']).next().unwrap_or(address)
}

fn stem(name: &str) -> &str {
    name.trim_end_matches(".gz").trim_end_matches(".xml").trim_start_matches("ssg-")
}

fn is_content(name: &str) -> bool {
    product(name).is_some()
}

/// `ssg-jre-ds.xml` is of the product `jre`; the number says how good that kind of file is, 0 the best.
fn product(name: &str) -> Option<(&str, usize)> {
    let name = name.trim_end_matches(".gz").strip_prefix("ssg-")?;
    ENDINGS.iter().enumerate().find_map(|(rank, ending)| {
        Some((name.strip_suffix(ending)?, rank)).filter(|(product, _)| !product.is_empty())
    })
}

/// The best file of each product.
fn best_files<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut best: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for name in names {
        let Some((product, rank)) = product(name) else { continue };
        let candidate = (rank, name.to_owned());
        let known = best.entry(product.to_owned()).or_insert_with(|| candidate.clone());
        if candidate < *known {
            *known = candidate;
        }
    }
    best.into_iter().map(|(product, (_, name))| (product, name)).collect()
}

/// The id without what every id of its sort begins with.
fn short<'a>(id: &'a str, sort: &str) -> &'a str {
    id.split_once(&format!("content_{sort}_")).map_or(id, |(_, short)| short)
}

fn urn(id: &str) -> Result<Urn, Reject> {
    Urn::new("ssg", id).map_err(Reject::new)
}

/// What an element stands in: a group, or the benchmark itself.
fn parent_link(item: &Element, product: &str) -> Result<Vec<Link>, Reject> {
    let to = match (item.attribute("within"), item.attribute("parent")) {
        (Some("Group"), Some(parent)) => urn(&format!("{product}/group/{}", short(parent, "group")))?,
        (Some("Benchmark"), _) => urn(&format!("guide-{product}"))?,
        _ => return Ok(Vec::new()),
    };
    Ok(vec![Link { kind: "member_of", to }])
}

fn benchmark(entry: &Element, product: &str) -> Result<Record, Reject> {
    let status = entry.child("status");
    let details = json!({
        "product": product,
        "benchmark": entry.required("id")?,
        "version": entry.text_of("version"),
        "platforms": entry.children("platform").filter_map(|one| one.attribute("idref")).collect::<Vec<_>>(),
        "notices": catalog::all(entry, "notice"),
        "front_matter": entry.text_of("front-matter"),
        "rear_matter": entry.text_of("rear-matter"),
    });
    let mut record = record(entry, urn(&format!("guide-{product}"))?, "benchmark", details, Vec::new())?;
    record.status = status.map(Element::text).filter(|text| !text.is_empty());
    record.modified = status.and_then(|status| status.attribute("date")).map(str::to_owned);
    Ok(record)
}

fn profile(entry: &Element, product: &str) -> Result<Record, Reject> {
    let id = short(entry.required("id")?, "profile").to_owned();
    let (mut selections, mut links) = (Vec::new(), Vec::new());
    for one in entry.children("select") {
        let idref = one.required("idref")?;
        let selected = one.attribute("selected") == Some("true");
        selections.push(json!({"id": idref, "selected": selected}));
        if selected && !idref.contains("content_group_") {
            links.push(Link { kind: "selects", to: urn(&format!("{product}/{}", short(idref, "rule")))? });
        }
    }
    let values: Vec<_> = entry
        .children("refine-value")
        .map(|one| json!({"id": one.attribute("idref"), "selector": one.attribute("selector")}))
        .collect();
    let details = json!({"product": product, "extends": entry.attribute("extends"), "selections": selections,
        "values": values});
    record(entry, urn(&format!("{product}/profile/{id}"))?, "profile", details, links)
}

fn group(entry: &Element, product: &str, links: Vec<Link>) -> Result<Record, Reject> {
    let id = short(entry.required("id")?, "group").to_owned();
    let details = json!({"product": product, "warnings": catalog::all(entry, "warning")});
    record(entry, urn(&format!("{product}/group/{id}"))?, "group", details, links)
}

fn rule(entry: &Element, product: &str, mut links: Vec<Link>) -> Result<Record, Reject> {
    let id = short(entry.required("id")?, "rule").to_owned();
    let (mut cce, mut idents) = (Vec::new(), Vec::new());
    for one in entry.children("ident") {
        let (system, text) = (one.attribute("system").unwrap_or_default(), one.text());
        if text.starts_with("CCE-") {
            links.push(Link { kind: "cce", to: Urn::new("cce", &text).map_err(Reject::new)? });
            cce.push(text);
        } else if !text.is_empty() {
            idents.push(json!({"system": system, "id": text}));
        }
    }
    let references: Vec<_> = entry
        .children("reference")
        .map(|one| json!({"href": one.attribute("href"), "text": one.text()}))
        .filter(|one| one["text"] != "")
        .collect();
    let checks: Vec<_> = entry.children("check").filter_map(|one| one.attribute("system")).collect();
    let fixes: Vec<_> = entry
        .children("fix")
        .map(|one| json!({"system": one.attribute("system"), "text": one.text()}))
        .collect();
    let details = json!({
        "product": product,
        "rationale": entry.text_of("rationale"),
        "warnings": catalog::all(entry, "warning"),
        "cce": cce,
        "idents": idents,
        "references": references,
        "checks": checks,
        "fixes": fixes,
    });
    let mut record = record(entry, urn(&format!("{product}/{id}"))?, "rule", details, links)?;
    record.severity = entry.attribute("severity").map(str::to_owned);
    Ok(record)
}

fn record(
    entry: &Element,
    urn: Urn,
    subtype: &'static str,
    details: serde_json::Value,
    links: Vec<Link>,
) -> Result<Record, Reject> {
    let title = entry.text_of("title").ok_or_else(|| Reject(format!("{} has no title", urn.id())))?;
    Ok(Record {
        urn,
        subtype,
        title: text::headline(&title, 200),
        text: entry.text_of("description").unwrap_or_default(),
        published: None,
        modified: None,
        status: None,
        severity: None,
        details: details.to_string(),
        links: catalog::tidy(links),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_is_in_the_name_of_the_file() {
        assert_eq!(product("ssg-jre-ds.xml"), Some(("jre", 0)));
        assert_eq!(product("ssg-rhel7-xccdf-1.2.xml.gz"), Some(("rhel7", 2)));
        assert_eq!(product("ssg-ol8-oval.xml"), None);
        assert_eq!(product("ssg--ds.xml"), None);
        assert_eq!(file_name("http://host/a/ssg-jre-ds.xml?x=/1"), "ssg-jre-ds.xml");
    }
}
