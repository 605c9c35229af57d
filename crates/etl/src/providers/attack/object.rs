//! One object of ATT&CK as a record.

use serde_json::{Value, json};

use crate::providers::catalog;
use crate::record::{Link, Record, Reject};
use crate::{Urn, text};

pub(super) fn understand(item: &Value) -> Result<Record, Reject> {
    if let Some(lost) = item["relationship"].as_str() {
        let (from, to) = (item["from"].as_str().unwrap_or("?"), item["to"].as_str().unwrap_or("?"));
        return Err(Reject(format!("{lost} leads from {from} to {to}: one of them is in no file")));
    }
    let id =
        item["id"].as_str().ok_or_else(|| Reject("it is no object of ATT&CK: it has no id".to_owned()))?;
    let fields = &item["fields"];
    let field =
        |name: &str| fields[name].as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let name = field("name").ok_or_else(|| Reject(format!("{id} has no name")))?;
    let kind = item["kind"].as_str().unwrap_or_default();
    let subtype = SUBTYPES.into_iter().find(|known| *known == kind);
    let subtype = subtype.ok_or_else(|| Reject(format!("{id} is a `{kind}`, which we do not know")))?;
    let attack = |id: &str| Urn::new("attack", id).map_err(Reject::new);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut links = Vec::new();
    for tactic in list(&fields["tactics"]) {
        if let Some(id) = tactic["id"].as_str() {
            links.push(Link { kind: "tactic", to: attack(id)? });
        }
    }
    for capec in list(&fields["capec"]) {
        let to = Urn::new("capec", capec.as_str().unwrap_or_default()).map_err(Reject::new)?;
        links.push(Link { kind: "attack_pattern", to });
    }
    for one in list(&item["relationships"]) {
        if one["withdrawn"] != true {
            let to = attack(one["to"].as_str().unwrap_or_default())?;
            links.push(Link { kind: link_kind(one["kind"].as_str().unwrap_or_default()), to });
        }
    }
    let details = json!({
        "stix": item["stix"],
        "url": fields["url"],
        "version": fields["version"],
        "domains": item["domains"],
        "is_subtechnique": fields["is_subtechnique"],
        "software_type": fields["software_type"],
        "tactics": fields["tactics"],
        "shortname": fields["shortname"],
        "platforms": fields["platforms"],
        "aliases": fields["aliases"],
        "sectors": fields["sectors"],
        "contributors": fields["contributors"],
        "detection": fields["detection"],
        "first_seen": fields["first_seen"],
        "last_seen": fields["last_seen"],
        "capec": fields["capec"],
        "references": fields["references"],
        "relationships": item["relationships"],
    });
    Ok(Record {
        urn: attack(id)?,
        subtype,
        title: text::headline(&name, 200),
        text: field("description").unwrap_or_default(),
        published: field("created"),
        modified: field("modified"),
        status: item["status"].as_str().map(str::to_owned),
        severity: None,
        details: details.to_string(),
        links: catalog::tidy(links),
    })
}

const SUBTYPES: [&str; 11] = [
    "technique",
    "tactic",
    "mitigation",
    "group",
    "software",
    "campaign",
    "data source",
    "data component",
    "asset",
    "analytic",
    "detection strategy",
];

fn link_kind(kind: &str) -> &'static str {
    match kind {
        "uses" => "uses",
        "mitigates" => "mitigates",
        "detects" => "detects",
        "targets" => "targets",
        "attributed-to" => "attributed_to",
        "revoked-by" => "revoked_by",
        "subtechnique-of" => "child_of",
        _ => "related",
    }
}
