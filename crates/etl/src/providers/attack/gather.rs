//! Many files, one object each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use super::{DOMAINS, NEWER, NO_RECORD, bundle, workbook};
use crate::source::{Failure, Found, Gathered, Limits, Piece};

/// What is in one file.
#[derive(Default)]
pub(super) struct File {
    pub(super) objects: Vec<Object>,
    pub(super) relationships: Vec<Relationship>,
    /// What nobody understands, as it stands there.
    pub(super) unknown: Vec<(u64, Vec<u8>)>,
    /// The version of the content, where the file says it.
    pub(super) version: Option<String>,
    /// What is missing at its end.
    pub(super) gap: Option<String>,
}

/// An object, in words both formats share.
pub(super) struct Object {
    pub(super) stix: String,
    /// Such as T1078; some older objects have none.
    pub(super) id: Option<String>,
    /// Empty for what is no record.
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) fields: Map<String, Value>,
    pub(super) position: u64,
}

pub(super) struct Relationship {
    pub(super) stix: String,
    pub(super) kind: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) description: Option<String>,
    /// Revoked or deprecated: kept and marked, but no link.
    pub(super) withdrawn: bool,
    pub(super) position: u64,
}

/// How much a file has to say: the newer content first, and the bundle before the workbook made of it.
type Rank = (Vec<u32>, bool);

struct Read {
    piece: usize,
    domain: &'static str,
    rank: Rank,
    file: File,
    /// Its relationships, by where they begin.
    by_source: HashMap<String, Vec<usize>>,
}

pub(super) fn gather(pieces: &[Piece], limits: Limits) -> Result<Gathered, Failure> {
    let mut gathered = Gathered::default();
    let mut files: Vec<Read> = Vec::new();
    for (piece, one) in pieces.iter().enumerate() {
        let is_workbook = one.file_name().to_ascii_lowercase().ends_with(".xlsx");
        let read = if is_workbook { workbook::read(one, limits) } else { bundle::read(one) };
        let file = match read {
            Ok(file) => file,
            Err(why) if pieces.len() > 1 => {
                gathered.gaps.push(format!("{}: {why}", one.name));
                continue;
            }
            Err(why) => return Err(Failure::Broken(format!("{}: {why}", one.name))),
        };
        gathered.gaps.extend(file.gap.iter().map(|gap| format!("{}: {gap}", one.name)));
        let rank = (version(file.version.as_deref().unwrap_or(one.file_name())), !is_workbook);
        let mut by_source: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, relationship) in file.relationships.iter().enumerate() {
            by_source.entry(relationship.from.clone()).or_default().push(at);
        }
        files.push(Read { piece, domain: domain(one), rank, file, by_source });
    }
    files.sort_by(|one, other| other.rank.cmp(&one.rank).then(one.piece.cmp(&other.piece)));
    merge(&files, &mut gathered);
    gathered.items.sort_by_key(|found| (found.piece, found.position));
    Ok(gathered)
}

/// Files come with the best first.
fn merge(files: &[Read], gathered: &mut Gathered) {
    // The id of each object, wherever it stands; the best file that knows one says it.
    let mut ids: HashMap<&str, String> = HashMap::new();
    for object in files.iter().flat_map(|read| &read.file.objects) {
        if let Some(id) = &object.id {
            ids.entry(&object.stix).or_insert_with(|| id.clone());
        }
    }
    for object in files.iter().flat_map(|read| &read.file.objects) {
        ids.entry(&object.stix).or_insert_with(|| object.stix.clone());
    }
    let holders = holders(files);
    // Of objects that share an id, such as one that was revoked and the one in its place, one gives the record.
    let mut winners: BTreeMap<&str, (bool, usize, &str)> = BTreeMap::new();
    for (at, read) in files.iter().enumerate() {
        for object in read.file.objects.iter().filter(|object| holders[object.stix.as_str()][0] == at) {
            let candidate = (object.status != "active", at, object.stix.as_str());
            let best = winners.entry(&ids[object.stix.as_str()]).or_insert(candidate);
            *best = candidate.min(*best);
        }
    }
    for (at, read) in files.iter().enumerate() {
        let mut push =
            |position: u64, raw: Vec<u8>| gathered.items.push(Found { piece: read.piece, position, raw });
        for (position, raw) in &read.file.unknown {
            push(*position, raw.clone());
        }
        for object in &read.file.objects {
            let id = &ids[object.stix.as_str()];
            let mut item = json!({"id": id, "stix": object.stix, "kind": object.kind, "status": object.status,
                "fields": object.fields});
            let of_record = winners
                .get(id.as_str())
                .is_some_and(|(_, winner, stix)| *winner == at && *stix == object.stix);
            if object.kind.is_empty() {
                item["skip"] = json!(NO_RECORD);
            } else if !of_record {
                item["skip"] = json!(NEWER);
            } else {
                let holding = &holders[object.stix.as_str()];
                let domains: BTreeSet<_> = holding.iter().map(|&file| files[file].domain).collect();
                item["domains"] = json!(domains);
                item["relationships"] = json!(relationships(files, holding, &object.stix, &ids));
            }
            push(object.position, item.to_string().into_bytes());
        }
        // What begins or ends at an object nobody has is no part of a record, and must not get lost.
        for one in &read.file.relationships {
            if !ids.contains_key(one.from.as_str()) || !ids.contains_key(one.to.as_str()) {
                let lost = json!({"relationship": one.stix, "kind": one.kind, "from": one.from, "to": one.to,
                    "description": one.description});
                push(one.position, lost.to_string().into_bytes());
            }
        }
    }
}

/// The files each object stands in, the best first.
fn holders(files: &[Read]) -> HashMap<&str, Vec<usize>> {
    let mut holders: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, read) in files.iter().enumerate() {
        for object in &read.file.objects {
            let holding = holders.entry(&object.stix).or_default();
            if holding.last() != Some(&at) {
                holding.push(at);
            }
        }
    }
    holders
}

/// The relationships of an object: of each domain those of the best file that has some or has the object.
fn relationships(files: &[Read], holding: &[usize], stix: &str, ids: &HashMap<&str, String>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for domain in DOMAINS.iter().chain([&""]) {
        let holds = |(at, read): &(usize, &Read)| {
            read.domain == *domain && (read.by_source.contains_key(stix) || holding.contains(at))
        };
        let Some((_, read)) = files.iter().enumerate().find(holds) else { continue };
        for &at in read.by_source.get(stix).into_iter().flatten() {
            let one = &read.file.relationships[at];
            let Some(to) = ids.get(one.to.as_str()) else { continue };
            if seen.insert(&one.stix) {
                all.push(json!({"kind": one.kind, "to": to, "description": one.description,
                    "withdrawn": one.withdrawn}));
            }
        }
    }
    let key = |one: &Value| {
        [&one["kind"], &one["to"], &one["description"]].map(|part| part.as_str().map(str::to_owned))
    };
    all.sort_by_cached_key(key);
    all
}

fn domain(piece: &Piece) -> &'static str {
    let name = piece.file_name().to_ascii_lowercase();
    DOMAINS.into_iter().find(|domain| name.contains(domain)).unwrap_or_default()
}

/// The numbers of the first thing in a name that looks like a version: `ics-attack-19.1-stix21.json` is `[19, 1]`.
fn version(name: &str) -> Vec<u32> {
    name.split(['-', '_'])
        .map(|part| part.trim_start_matches('v').trim_end_matches(".xlsx").trim_end_matches(".json"))
        .find_map(|part| part.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_name() {
        assert_eq!(version("ics-attack-19.1-stix21.json"), [19, 1]);
        assert_eq!(version("enterprise-attack-v18.1.xlsx"), [18, 1]);
        assert_eq!(version("enterprise-attack.json"), [] as [u32; 0]);
        assert_eq!(version("14.0"), [14, 0]);
    }
}
