//! STIX 2.1 bundles.

use serde_json::{Map, Value, json};

use super::gather::{File, Object, Relationship};
use crate::source::{JsonArray, Piece};

/// Everything in a bundle. An object that is no JSON stays as it is; what is cut off is a gap.
pub(super) fn read(piece: &Piece) -> Result<File, String> {
    let mut array = JsonArray::new(&piece.bytes[..], "objects");
    let mut file = File::default();
    for position in 0.. {
        let raw = match array.next_element() {
            Ok(Some(raw)) => raw,
            Ok(None) => break,
            Err(cut) if array.has_array() => {
                file.gap = Some(cut.to_string());
                break;
            }
            Err(cut) => return Err(format!("not a STIX bundle: {cut}")),
        };
        match serde_json::from_slice::<Value>(&raw) {
            Ok(object) if object["type"] == "relationship" => match relationship(&object, position) {
                Some(relationship) => file.relationships.push(relationship),
                None => file.unknown.push((position, raw)),
            },
            Ok(object) if object["type"].is_string() && object["id"].is_string() => {
                if object["type"] == "x-mitre-collection" {
                    file.version = object["x_mitre_version"].as_str().map(str::to_owned);
                }
                file.objects.push(object_of(&object, position));
            }
            _ => file.unknown.push((position, raw)),
        }
    }
    if !array.has_array() || array.field("type").is_some_and(|kind| kind != "bundle") {
        return Err(
            "not a STIX bundle: attack reads STIX 2.1 bundles and the workbooks made of them".to_owned()
        );
    }
    resolve_tactics(&mut file.objects);
    Ok(file)
}

fn flag(object: &Value, name: &str) -> bool {
    object[name].as_bool().unwrap_or_default()
}

fn relationship(object: &Value, position: u64) -> Option<Relationship> {
    let text = |name: &str| object[name].as_str().map(str::to_owned);
    Some(Relationship {
        stix: text("id")?,
        kind: text("relationship_type")?,
        from: text("source_ref")?,
        to: text("target_ref")?,
        description: text("description").filter(|text| !text.is_empty()),
        withdrawn: flag(object, "revoked") || flag(object, "x_mitre_deprecated"),
        position,
    })
}

/// The object in the words both formats share.
fn object_of(object: &Value, position: u64) -> Object {
    let references = object["external_references"].as_array().map(Vec::as_slice).unwrap_or_default();
    let id = references.iter().find_map(|one| {
        one["source_name"].as_str().filter(|name| name.starts_with("mitre"))?;
        one["external_id"].as_str()
    });
    let kind = match object["type"].as_str().unwrap_or_default() {
        "attack-pattern" => "technique",
        "x-mitre-tactic" => "tactic",
        "course-of-action" => "mitigation",
        "intrusion-set" => "group",
        "malware" | "tool" => "software",
        "campaign" => "campaign",
        "x-mitre-data-source" => "data source",
        "x-mitre-data-component" => "data component",
        "x-mitre-asset" => "asset",
        "x-mitre-analytic" => "analytic",
        "x-mitre-detection-strategy" => "detection strategy",
        _ => "",
    };
    let mut fields = Map::new();
    let mut put = |name: &str, value: &Value| {
        if !value.is_null() {
            fields.insert(name.to_owned(), value.clone());
        }
    };
    for (ours, theirs) in [
        ("name", "name"),
        ("description", "description"),
        ("created", "created"),
        ("modified", "modified"),
        ("version", "x_mitre_version"),
        ("platforms", "x_mitre_platforms"),
        ("contributors", "x_mitre_contributors"),
        ("detection", "x_mitre_detection"),
        ("first_seen", "first_seen"),
        ("last_seen", "last_seen"),
        ("shortname", "x_mitre_shortname"),
        ("sectors", "x_mitre_sectors"),
        ("data_source", "x_mitre_data_source_ref"),
    ] {
        put(ours, &object[theirs]);
    }
    put(
        "aliases",
        if object["aliases"].is_array() { &object["aliases"] } else { &object["x_mitre_aliases"] },
    );
    if kind == "software" {
        put("software_type", &object["type"]);
    }
    if kind == "technique" {
        put("is_subtechnique", &json!(flag(object, "x_mitre_is_subtechnique")));
    }
    let phases: Vec<_> = object["kill_chain_phases"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|phase| phase["phase_name"].as_str())
        .collect();
    if !phases.is_empty() {
        put("phases", &json!(phases));
    }
    let url = references.iter().find(|one| one["external_id"].is_string()).map(|one| &one["url"]);
    put("url", url.unwrap_or(&Value::Null));
    let capec: Vec<_> = references
        .iter()
        .filter(|one| one["source_name"] == "capec")
        .filter_map(|one| one["external_id"].as_str())
        .collect();
    if !capec.is_empty() {
        put("capec", &json!(capec));
    }
    let cited: Vec<_> = references
        .iter()
        .filter(|one| !one["external_id"].is_string())
        .map(|one| json!({"name": one["source_name"], "url": one["url"], "description": one["description"]}))
        .collect();
    if !cited.is_empty() {
        put("references", &json!(cited));
    }
    let status = match (flag(object, "revoked"), flag(object, "x_mitre_deprecated")) {
        (true, _) => "revoked",
        (false, true) => "deprecated",
        (false, false) => "active",
    };
    Object {
        stix: object["id"].as_str().unwrap_or_default().to_owned(),
        id: id.map(str::to_owned),
        kind,
        status,
        fields,
        position,
    }
}

/// Techniques name tactics by their short names; the workbooks by their names, and so do we.
fn resolve_tactics(objects: &mut [Object]) {
    let tactics: Vec<(Value, Value, Value)> = objects
        .iter()
        .filter(|one| one.kind == "tactic")
        .map(|one| {
            let field = |name: &str| one.fields.get(name).cloned().unwrap_or_default();
            (field("shortname"), field("name"), json!(one.id))
        })
        .collect();
    for object in objects.iter_mut() {
        let Some(Value::Array(phases)) = object.fields.remove("phases") else { continue };
        let found: Vec<_> = phases
            .iter()
            .map(|phase| match tactics.iter().find(|(short, ..)| short == phase) {
                Some((_, name, id)) => json!({"name": name, "id": id}),
                None => json!({"name": phase, "id": null}),
            })
            .collect();
        object.fields.insert("tactics".to_owned(), json!(found));
    }
}
