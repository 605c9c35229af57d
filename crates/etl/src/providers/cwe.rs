//! CWE: the answers of the REST API, one file each, and the XML catalogue.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::catalog::{self, all, paragraphs, texts};
use super::element::Element;
use super::{PathLink, Provider};
use crate::record::{Item, Link, Record, Reject, Verdict};
use crate::source::{
    Collected, Context, Extract, Failure, Found, Gathered, JsonArray, Layout, Limits, Piece, Rows as _,
    RowsError, Source, XmlItems,
};
use crate::text;

/// The provider `cwe`.
pub struct Cwe;

const LAYOUT: Layout = Layout {
    root: "Weakness_Catalog",
    items: &["Weakness", "Category", "View", "External_Reference"],
    what: "a CWE catalogue",
};

/// Files that list or arrange what has a file of its own.
const INDEXES: [&str; 3] = ["categories.json", "views.json", "cwe_tree.json"];
/// Lists in an answer that holds several entries.
const LISTS: [&str; 3] = ["Weaknesses", "Categories", "Views"];
const NEWER: &str = "a file of the REST API holds it too";

impl Provider for Cwe {
    fn id(&self) -> &'static str {
        "cwe"
    }

    fn upstream(&self) -> &'static str {
        "https://cwe-api.mitre.org/api/v1"
    }

    fn path_link(&self) -> Option<PathLink> {
        Some(PathLink { to: "capec", names: "attack_pattern", named_by: Some("weakness") })
    }

    fn open(
        &self,
        source: &Source,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Box<dyn Extract>, Failure> {
        Ok(Box::new(Collected::open(source, fits, urls, gather, resume, context)?))
    }

    fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
        if item.raw.starts_with(b"<item") {
            let item = Element::parse(&item.raw)?;
            if item.attribute("superseded").is_some() {
                return Ok(Verdict::Skip(NEWER));
            }
            let entry = item.elements().next().ok_or_else(|| Reject("it is empty".to_owned()))?;
            return Ok(Verdict::Record(Box::new(from_xml(entry)?)));
        }
        let entry: Value = serde_json::from_slice(&item.raw).map_err(Reject::new)?;
        Ok(Verdict::Record(Box::new(from_json(&entry)?)))
    }
}

fn fits(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    (file.ends_with(".json") && !INDEXES.contains(&file))
        || file.ends_with(".xml")
        || file.ends_with(".xml.gz")
}

/// The API has an address for each kind of entry, and one that says how many there are.
fn urls(base: &str) -> Vec<String> {
    let address = base.split('?').next().unwrap_or(base);
    if fits(address) || address.ends_with(".zip") {
        return vec![base.to_owned()];
    }
    let base = base.trim_end_matches('/');
    ["weakness/all", "category/all", "view/all", "version"].map(|path| format!("{base}/cwe/{path}")).into()
}

/// As much of a file as says what it is.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Peek {
    #[serde(rename = "ID")]
    id: Option<String>,
    abstraction: Option<String>,
    objective: Option<String>,
    total_weaknesses: Option<u64>,
    total_categories: Option<u64>,
    total_views: Option<u64>,
}

fn gather(pieces: &[Piece], _limits: Limits) -> Result<Gathered, Failure> {
    let mut gathered = Gathered::default();
    let mut declared = None;
    // Weaknesses, categories, views.
    let mut counts = [0u64; 3];
    let mut ids = BTreeSet::new();
    let mut count = |raw: &[u8], ids: &mut BTreeSet<String>| {
        let Ok(peek) = serde_json::from_slice::<Peek>(raw) else { return };
        counts[if peek.abstraction.is_some() {
            0
        } else if peek.objective.is_some() {
            2
        } else {
            1
        }] += 1;
        ids.extend(peek.id);
    };
    for (piece, file) in pieces.iter().enumerate() {
        if is_xml(file) {
            continue;
        }
        if let Ok(Peek {
            id: None, total_weaknesses: Some(weaknesses), total_categories, total_views, ..
        }) = serde_json::from_slice(&file.bytes)
        {
            declared = Some((piece, [weaknesses, total_categories.unwrap_or(0), total_views.unwrap_or(0)]));
            continue;
        }
        let mut found = Vec::new();
        for list in LISTS {
            let mut array = JsonArray::new(&file.bytes[..], list);
            let elements = std::iter::from_fn(|| array.next_element().transpose());
            for element in elements {
                match element {
                    Ok(element) => found.push(element),
                    Err(cut) if !found.is_empty() => {
                        gathered.gaps.push(format!("{}: {cut}", file.name));
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
        if found.is_empty() {
            // One entry, or something that is none: then it becomes a dead letter, with all its bytes.
            found.push(file.bytes.clone());
        }
        for (position, raw) in found.into_iter().enumerate() {
            count(&raw, &mut ids);
            gathered.items.push(Found { piece, position: position as u64, raw });
        }
    }
    for (piece, file) in pieces.iter().enumerate().filter(|(_, file)| is_xml(file)) {
        catalogue(piece, file, &ids, &mut gathered)?;
    }
    if let Some((piece, declared)) = declared {
        for ((what, declared), found) in
            ["weaknesses", "categories", "views"].iter().zip(declared).zip(counts)
        {
            if declared != found {
                let name = &pieces[piece].name;
                gathered.gaps.push(format!("{name} declares {declared} {what}, and there are {found}"));
            }
        }
    }
    Ok(gathered)
}

fn is_xml(piece: &Piece) -> bool {
    piece.bytes.trim_ascii_start().starts_with(b"<") || piece.file_name().ends_with(".xml")
}

fn catalogue(
    piece: usize,
    file: &Piece,
    known: &BTreeSet<String>,
    gathered: &mut Gathered,
) -> Result<(), Failure> {
    let mut rows = XmlItems::new(&file.bytes[..], LAYOUT, Vec::new());
    for position in 0.. {
        let mut raw = match rows.next_row() {
            Ok(Some(raw)) => raw,
            Ok(None) => break,
            Err(RowsError::Cut(cut)) => {
                gathered.gaps.push(format!("{}: {cut}", file.name));
                break;
            }
            Err(RowsError::Format(why)) => return Err(Failure::Broken(format!("{}: {why}", file.name))),
        };
        let id = Element::parse(&raw).ok().and_then(|item| {
            item.elements().next().and_then(|entry| entry.attribute("ID").map(str::to_owned))
        });
        if id.is_some_and(|id| known.contains(&id)) {
            raw.splice(5..5, *b" superseded=\"yes\"");
        }
        gathered.items.push(Found { piece, position, raw });
    }
    Ok(())
}

fn from_json(entry: &Value) -> Result<Record, Reject> {
    let text =
        |name: &str| entry[name].as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let id = text("ID").ok_or_else(|| Reject("it has no ID".to_owned()))?;
    let (subtype, body) = if entry["Abstraction"].is_string() {
        ("weakness", paragraphs(&[text("Description"), text("ExtendedDescription")]))
    } else if entry["Objective"].is_string() {
        ("view", text("Objective").unwrap_or_default())
    } else if entry["Summary"].is_string() {
        ("category", text("Summary").unwrap_or_default())
    } else {
        return Err(Reject(format!("{id} is neither a weakness nor a category nor a view")));
    };
    // The objective of a view may be blank upstream; a weakness says what it is.
    if body.is_empty() && subtype == "weakness" {
        return Err(Reject(format!("{id} has no text")));
    }
    let list = |name: &str| entry[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut links = Vec::new();
    for one in list("RelatedWeaknesses") {
        let to = one["CweID"].as_str().unwrap_or_default();
        links.push(catalog::link(
            catalog::nature(one["Nature"].as_str().unwrap_or_default()),
            "cwe",
            "CWE-",
            to,
        )?);
    }
    for one in list("RelatedAttackPatterns") {
        links.push(catalog::link("attack_pattern", "capec", "CAPEC-", one.as_str().unwrap_or_default())?);
    }
    for one in list("Relationships").iter().chain(list("Members")) {
        links.push(catalog::link("has_member", "cwe", "CWE-", one["CweID"].as_str().unwrap_or_default())?);
    }
    links.extend(list("ObservedExamples").iter().filter_map(|one| example(one["Reference"].as_str()?)));
    let dates = |what: &str, date: &str| -> Vec<String> {
        list("ContentHistory")
            .iter()
            .filter(|one| one["Type"] == what)
            .filter_map(|one| one[date].as_str().map(str::to_owned))
            .collect()
    };
    let published = dates("Submission", "SubmissionDate").into_iter().min();
    let details = json!({
        "type": entry["Type"],
        "abstraction": entry["Abstraction"],
        "structure": entry["Structure"],
        "likelihood": entry["LikelihoodOfExploit"],
        "terms": list("AlternateTerms").iter().map(|one| &one["Term"]).collect::<Vec<_>>(),
        "platforms": list("ApplicablePlatforms"),
        "introduction": list("ModesOfIntroduction").iter().map(|one| &one["Phase"]).collect::<Vec<_>>(),
        "consequences": list("CommonConsequences").iter().map(|one| json!({"scope": one["Scope"],
            "impact": one["Impact"], "likelihood": one["Likelihood"], "note": one["Note"]})).collect::<Vec<_>>(),
        "mitigations": list("PotentialMitigations").iter().map(|one| json!({"phase": one["Phase"],
            "strategy": one["Strategy"], "description": one["Description"],
            "effectiveness": one["Effectiveness"]})).collect::<Vec<_>>(),
        "detection": list("DetectionMethods").iter().map(|one| json!({"method": one["Method"],
            "description": one["Description"], "effectiveness": one["Effectiveness"]})).collect::<Vec<_>>(),
        "observed": list("ObservedExamples").iter().map(|one| json!({"reference": one["Reference"],
            "description": one["Description"], "link": one["Link"]})).collect::<Vec<_>>(),
        "related": list("RelatedWeaknesses").iter().map(|one| json!({"nature": one["Nature"],
            "id": one["CweID"], "view": one["ViewID"]})).collect::<Vec<_>>(),
        "taxonomies": list("TaxonomyMappings").iter().map(|one| json!({"taxonomy": one["TaxonomyName"],
            "id": one["EntryID"], "name": one["EntryName"]})).collect::<Vec<_>>(),
        "references": list("References").iter().map(|one| json!({"id": one["ExternalReferenceID"],
            "title": one["Title"], "url": one["URL"]})).collect::<Vec<_>>(),
        "usage": entry["MappingNotes"]["Usage"],
        "audience": list("Audience"),
        "notes": list("Notes"),
    });
    Ok(Record {
        urn: catalog::urn("cwe", "CWE-", &id)?,
        subtype,
        title: text::headline(&text("Name").ok_or_else(|| Reject(format!("{id} has no name")))?, 200),
        text: body,
        modified: dates("Modification", "ModificationDate").into_iter().max().or_else(|| published.clone()),
        published,
        status: text("Status"),
        severity: text("LikelihoodOfExploit"),
        details: details.to_string(),
        links: catalog::tidy(links),
    })
}

/// The CVE in which it was seen, where it is one.
fn example(reference: &str) -> Option<Link> {
    Some(Link { kind: "observed_in", to: crate::Urn::new("cve", reference.trim()).ok()? })
}

fn from_xml(entry: &Element) -> Result<Record, Reject> {
    let (subtype, body) = match entry.name.as_str() {
        "External_Reference" => return catalog::reference(entry, "cwe"),
        "Weakness" => {
            ("weakness", paragraphs(&[entry.text_of("Description"), entry.text_of("Extended_Description")]))
        }
        "Category" => ("category", entry.text_of("Summary").unwrap_or_default()),
        "View" => ("view", entry.text_of("Objective").unwrap_or_default()),
        other => return Err(Reject(format!("<{other}> is nothing we know"))),
    };
    let id = entry.required("ID")?;
    if body.is_empty() && subtype == "weakness" {
        return Err(Reject(format!("{id} has no text")));
    }
    let (references, mut links) = catalog::references(entry, "cwe")?;
    let mut related = Vec::new();
    for one in entry.list("Related_Weaknesses", "Related_Weakness") {
        let (nature, to) = (one.required("Nature")?, one.required("CWE_ID")?);
        links.push(catalog::link(catalog::nature(nature), "cwe", "CWE-", to)?);
        related.push(json!({"nature": nature, "id": to, "view": one.attribute("View_ID")}));
    }
    for one in entry.list("Related_Attack_Patterns", "Related_Attack_Pattern") {
        links.push(catalog::link("attack_pattern", "capec", "CAPEC-", one.required("CAPEC_ID")?)?);
    }
    for one in entry.list("Relationships", "Has_Member").chain(entry.list("Members", "Has_Member")) {
        links.push(catalog::link("has_member", "cwe", "CWE-", one.required("CWE_ID")?)?);
    }
    let observed: Vec<_> = entry
        .list("Observed_Examples", "Observed_Example")
        .map(|one| {
            json!({"reference": one.text_of("Reference"), "description": one.text_of("Description"),
                "link": one.text_of("Link")})
        })
        .collect();
    links.extend(observed.iter().filter_map(|one| example(one["reference"].as_str()?)));
    let platforms: Vec<_> = entry
        .children("Applicable_Platforms")
        .flat_map(Element::elements)
        .map(|one| {
            json!({"Type": one.name, "Name": one.attribute("Name"), "Class": one.attribute("Class"),
                "Prevalence": one.attribute("Prevalence")})
        })
        .collect();
    let mitigations: Vec<_> = entry
        .list("Potential_Mitigations", "Mitigation")
        .map(|one| {
            json!({"phase": all(one, "Phase"), "strategy": one.text_of("Strategy"),
                "description": one.text_of("Description"), "effectiveness": one.text_of("Effectiveness")})
        })
        .collect();
    let detection: Vec<_> = entry
        .list("Detection_Methods", "Detection_Method")
        .map(|one| {
            json!({"method": one.text_of("Method"), "description": one.text_of("Description"),
                "effectiveness": one.text_of("Effectiveness")})
        })
        .collect();
    let introduction: Vec<_> =
        entry.list("Modes_Of_Introduction", "Introduction").filter_map(|one| one.text_of("Phase")).collect();
    let terms: Vec<_> =
        entry.list("Alternate_Terms", "Alternate_Term").filter_map(|one| one.text_of("Term")).collect();
    let likelihood = entry.text_of("Likelihood_Of_Exploit");
    let details = json!({
        "type": entry.attribute("Type"),
        "abstraction": entry.attribute("Abstraction"),
        "structure": entry.attribute("Structure"),
        "likelihood": likelihood,
        "terms": terms,
        "platforms": platforms,
        "introduction": introduction,
        "consequences": catalog::consequences(entry, "Common_Consequences"),
        "mitigations": mitigations,
        "detection": detection,
        "observed": observed,
        "related": related,
        "taxonomies": catalog::taxonomies(entry),
        "references": references,
        "usage": entry.child("Mapping_Notes").and_then(|notes| notes.text_of("Usage")),
        "audience": texts(entry, "Audience", "Stakeholder"),
        "notes": texts(entry, "Notes", "Note"),
    });
    let (published, modified) = catalog::dates(entry);
    Ok(Record {
        urn: catalog::urn("cwe", "CWE-", id)?,
        subtype,
        title: text::headline(entry.required("Name")?, 200),
        text: body,
        published,
        modified,
        status: entry.attribute("Status").map(str::to_owned),
        severity: likelihood,
        details: details.to_string(),
        links: catalog::tidy(links),
    })
}
