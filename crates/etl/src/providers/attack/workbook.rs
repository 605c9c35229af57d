//! The XLSX workbooks: a sheet for each sort of object, and one for the relationships.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::gather::{File, Object, Relationship};
use crate::source::{Limits, Piece, sheets};

/// The sheets that hold objects. `matrix` and `citations` arrange what stands in these.
const SHEETS: [(&str, &str); 11] = [
    ("techniques", "technique"),
    ("tactics", "tactic"),
    ("software", "software"),
    ("groups", "group"),
    ("campaigns", "campaign"),
    ("assets", "asset"),
    ("mitigations", "mitigation"),
    ("datasources", "data source"),
    ("datacomponents", "data component"),
    ("analytics", "analytic"),
    ("detectionstrategies", "detection strategy"),
];

type Row<'a> = BTreeMap<&'a str, &'a str>;

pub(super) fn read(piece: &Piece, limits: Limits) -> Result<File, String> {
    let sheets = sheets(&piece.bytes, limits)?;
    let mut file = File::default();
    let mut known = false;
    let mut position = 0;
    for sheet in &sheets {
        let sort = SHEETS.iter().find(|(name, _)| *name == sheet.name).map(|(_, kind)| *kind);
        if sort.is_none() && sheet.name != "relationships" {
            continue;
        }
        let mut rows = sheet.rows.values();
        let Some(header) = rows.next() else { continue };
        known = true;
        for cells in rows {
            position += 1;
            let row: Row<'_> = header
                .iter()
                .filter_map(|(column, name)| Some((name.as_str(), cells.get(column)?.trim())))
                .filter(|(_, text)| !text.is_empty())
                .collect();
            let unknown = || (position, json!({ "sheet": sheet.name, "row": row }).to_string().into_bytes());
            match sort {
                Some(kind) => match object(&row, kind, position) {
                    Some(object) => file.objects.push(object),
                    None => file.unknown.push(unknown()),
                },
                None => match relationship(&row, position) {
                    Some(relationship) => file.relationships.push(relationship),
                    None => file.unknown.push(unknown()),
                },
            }
        }
    }
    if !known {
        return Err("not a workbook of ATT&CK: it has neither techniques nor relationships".to_owned());
    }
    resolve(&mut file);
    Ok(file)
}

fn relationship(row: &Row<'_>, position: u64) -> Option<Relationship> {
    let text = |name: &str| row.get(name).map(|text| (*text).to_owned());
    Some(Relationship {
        stix: text("STIX ID")?,
        kind: text("mapping type")?,
        from: text("source ref")?,
        to: text("target ref")?,
        description: text("mapping description"),
        withdrawn: false,
        position,
    })
}

fn object(row: &Row<'_>, kind: &'static str, position: u64) -> Option<Object> {
    let mut fields = Map::new();
    for (ours, theirs) in [
        ("name", "name"),
        ("description", "description"),
        ("version", "version"),
        ("detection", "detection"),
        ("url", "url"),
        ("software_type", "type"),
        ("subtechnique_of", "sub-technique of"),
    ] {
        if let Some(text) = row.get(theirs) {
            fields.insert(ours.to_owned(), json!(text));
        }
    }
    for (ours, theirs) in [
        ("created", "created"),
        ("modified", "last modified"),
        ("first_seen", "first seen"),
        ("last_seen", "last seen"),
    ] {
        if let Some(text) = row.get(theirs) {
            fields.insert(ours.to_owned(), json!(date(text)));
        }
    }
    for (ours, theirs) in [
        ("platforms", "platforms"),
        ("contributors", "contributors"),
        ("aliases", "aliases"),
        ("aliases", "associated groups"),
        ("sectors", "sectors"),
        ("tactics", "tactics"),
    ] {
        if let Some(text) = row.get(theirs) {
            let separator = if ours == "contributors" { ';' } else { ',' };
            let list: Vec<_> = text.split(separator).map(str::trim).filter(|one| !one.is_empty()).collect();
            fields.insert(ours.to_owned(), json!(list));
        }
    }
    if kind == "technique" {
        let is_subtechnique =
            row.get("is sub-technique").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        fields.insert("is_subtechnique".to_owned(), json!(is_subtechnique));
    }
    Some(Object {
        stix: (*row.get("STIX ID")?).to_owned(),
        id: row.get("ID").map(|id| (*id).to_owned()),
        kind,
        status: "active",
        fields,
        position,
    })
}

/// `21 May 2020` as `2020-05-21`; what is no such date stays as it is.
fn date(text: &str) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [day, month, year] = parts[..] else { return text.to_owned() };
    let month = MONTHS.iter().position(|name| *name == month);
    match (day.parse::<u8>(), month, year.parse::<u16>()) {
        (Ok(day), Some(month), Ok(year)) => format!("{year:04}-{:02}-{day:02}", month + 1),
        _ => text.to_owned(),
    }
}

/// Names of tactics become tactics, and a technique that is part of another one is related to it.
fn resolve(file: &mut File) {
    let tactics: Vec<(Value, Value)> = file
        .objects
        .iter()
        .filter(|one| one.kind == "tactic")
        .map(|one| (one.fields.get("name").cloned().unwrap_or_default(), json!(one.id)))
        .collect();
    let ids: BTreeMap<String, String> =
        file.objects.iter().filter_map(|one| Some((one.id.clone()?, one.stix.clone()))).collect();
    for object in &mut file.objects {
        if let Some(Value::Array(names)) = object.fields.remove("tactics") {
            let found: Vec<_> = names
                .iter()
                .map(|name| {
                    let id = tactics.iter().find(|(known, _)| known == name).map(|(_, id)| id);
                    json!({"name": name, "id": id})
                })
                .collect();
            object.fields.insert("tactics".to_owned(), json!(found));
        }
        let parent = object.fields.remove("subtechnique_of");
        if let Some(to) = parent.as_ref().and_then(Value::as_str).and_then(|id| ids.get(id)) {
            let has = file
                .relationships
                .iter()
                .any(|one| one.kind == "subtechnique-of" && one.from == object.stix && one.to == *to);
            if !has {
                file.relationships.push(Relationship {
                    stix: format!("{}/subtechnique-of", object.stix),
                    kind: "subtechnique-of".to_owned(),
                    from: object.stix.clone(),
                    to: to.clone(),
                    description: None,
                    withdrawn: false,
                    position: object.position,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_in_words_become_dates() {
        assert_eq!(date("21 May 2020"), "2020-05-21");
        assert_eq!(date("soon"), "soon");
    }
}
