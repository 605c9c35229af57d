//! What the XML catalogues of CWE and CAPEC have in common.

use serde_json::{Map, Value, json};

use super::element::Element;
use crate::record::{Link, Record, Reject};
use crate::{Urn, text};

/// How an entry is related to another one of the same catalogue.
pub(super) fn nature(name: &str) -> &'static str {
    match name {
        "ChildOf" => "child_of",
        "ParentOf" => "parent_of",
        "PeerOf" => "peer_of",
        "CanPrecede" => "can_precede",
        "CanFollow" => "can_follow",
        "CanAlsoBe" => "can_also_be",
        "Requires" => "requires",
        "RequiredBy" => "required_by",
        "StartsWith" => "starts_with",
        _ => "related",
    }
}

/// A link, unless the number is none.
pub(super) fn link(kind: &'static str, to: &str, prefix: &str, number: &str) -> Result<Link, Reject> {
    let number = number.trim().trim_start_matches(prefix);
    Ok(Link { kind, to: Urn::new(to, &format!("{prefix}{number}")).map_err(Reject::new)? })
}

/// The entry's URN: upstream ids are bare digits.
pub(super) fn urn(kind: &str, prefix: &str, id: &str) -> Result<Urn, Reject> {
    Urn::new(kind, &format!("{prefix}{}", id.trim_start_matches(prefix))).map_err(Reject::new)
}

/// One text after the other, those that are there.
pub(super) fn paragraphs(parts: &[Option<String>]) -> String {
    parts.iter().flatten().map(String::as_str).collect::<Vec<_>>().join("\n\n")
}

/// When it was submitted, and when it was last modified.
pub(super) fn dates(entry: &Element) -> (Option<String>, Option<String>) {
    let dates = |what: &str, date: &str| -> Vec<String> {
        entry.list("Content_History", what).filter_map(|one| one.text_of(date)).collect()
    };
    let published = dates("Submission", "Submission_Date").into_iter().min();
    let modified = dates("Modification", "Modification_Date").into_iter().max();
    let modified = modified.or_else(|| published.clone());
    (published, modified)
}

/// The texts of the elements `inner` in `outer`.
pub(super) fn texts(entry: &Element, outer: &str, inner: &str) -> Vec<String> {
    entry.list(outer, inner).map(Element::text).filter(|text| !text.is_empty()).collect()
}

/// The texts of all elements `name` right inside.
pub(super) fn all(entry: &Element, name: &str) -> Vec<String> {
    entry.children(name).map(Element::text).filter(|text| !text.is_empty()).collect()
}

/// What may happen: scopes, impacts and a note each.
pub(super) fn consequences(entry: &Element, list: &str) -> Vec<Value> {
    entry
        .list(list, "Consequence")
        .map(|one| {
            json!({"scope": all(one, "Scope"), "impact": all(one, "Impact"), "likelihood": one.text_of("Likelihood"),
                "note": one.text_of("Note")})
        })
        .collect()
}

/// What other taxonomies call it.
pub(super) fn taxonomies(entry: &Element) -> Vec<Value> {
    entry
        .list("Taxonomy_Mappings", "Taxonomy_Mapping")
        .map(|one| {
            json!({"taxonomy": one.attribute("Taxonomy_Name"), "id": one.text_of("Entry_ID"),
                "name": one.text_of("Entry_Name")})
        })
        .collect()
}

/// The references, as ids and as links to their records.
pub(super) fn references(entry: &Element, kind: &str) -> Result<(Vec<Value>, Vec<Link>), Reject> {
    let (mut list, mut links) = (Vec::new(), Vec::new());
    for one in entry.list("References", "Reference") {
        let id = one.required("External_Reference_ID")?;
        list.push(json!({"id": id, "section": one.attribute("Section")}));
        links.push(Link { kind: "reference", to: Urn::new(kind, id).map_err(Reject::new)? });
    }
    Ok((list, links))
}

/// A source that entries refer to.
pub(super) fn reference(entry: &Element, kind: &str) -> Result<Record, Reject> {
    let id = entry.required("Reference_ID")?;
    let title = entry.text_of("Title").ok_or_else(|| Reject(format!("{id} has no title")))?;
    let mut details = Map::new();
    for name in ["Author", "Title", "Edition", "Publication", "Publisher", "URL", "URL_Date"] {
        let texts = all(entry, name);
        let value = if name == "Author" { json!(texts) } else { json!(texts.first()) };
        details.insert(name.to_lowercase(), value);
    }
    let date: Vec<_> = ["Publication_Year", "Publication_Month", "Publication_Day"]
        .iter()
        .map_while(|part| entry.text_of(part))
        .map(|part| format!("{:0>2}", part.trim_start_matches("--").trim_start_matches('-')))
        .collect();
    let authors = all(entry, "Author").join(", ");
    Ok(Record {
        urn: Urn::new(kind, id).map_err(Reject::new)?,
        subtype: "reference",
        title: text::headline(&title, 200),
        text: paragraphs(&[
            Some(title),
            Some(authors).filter(|authors| !authors.is_empty()),
            entry.text_of("Publisher"),
            entry.text_of("URL"),
        ]),
        published: (!date.is_empty()).then(|| date.join("-")),
        modified: None,
        status: None,
        severity: None,
        details: Value::Object(details).to_string(),
        links: Vec::new(),
    })
}

/// Sorted and each once: the order in a file means nothing.
pub(super) fn tidy(mut links: Vec<Link>) -> Vec<Link> {
    links.sort_unstable();
    links.dedup();
    links
}
