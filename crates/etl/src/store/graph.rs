//! Paths through the links between records, forward and back.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use utoipa::ToSchema;

use super::read::Reader;
use super::{Error, rows};
use crate::Urn;

/// A kind of records on a path, and the links that lead from it to the next kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// The kind.
    pub kind: &'static str,
    /// The kind of links by which its records name those of the next kind; none at the end of the path.
    pub names: Option<&'static str>,
    /// The kind of links by which records of the next kind name those of this kind.
    pub named_by: Option<&'static str>,
}

/// Where a path may end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// At any record of the kind.
    Kind(String),
    /// At this one.
    Record(Urn),
}

/// A record on the way, and where the shortest paths go from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Stop {
    /// Its name.
    pub urn: String,
    /// Its title; `None` where nobody has loaded it.
    pub title: Option<String>,
    /// How the one before leads here; empty at the start.
    pub by: &'static str,
    /// What follows.
    #[schema(no_recursion)]
    pub next: Vec<Stop>,
}

/// Every shortest path, as a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Paths {
    /// The tree, where there is a path.
    pub tree: Option<Stop>,
    /// How many paths there are.
    pub count: usize,
    /// How many steps each has.
    pub steps: usize,
    /// Records from where nothing leads on, with what is missing there.
    pub ends: Vec<End>,
}

/// Where a path ends before the goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct End {
    pub urn: String,
    pub why: String,
}

/// A step: how, and where to.
type Step = (&'static str, String);

impl Reader {
    /// All shortest paths from `from` to `goal`: a step leads to the next kind on the way, or, where the way is uphill,
    /// to what the record is a special case of.
    pub fn paths(&self, path: &[PathStep], from: &Urn, goal: &Goal) -> Result<Option<Paths>, Error> {
        let goal_kind = match goal {
            Goal::Kind(kind) => kind.as_str(),
            Goal::Record(urn) => urn.kind(),
        };
        let place = |kind: &str| path.iter().position(|step| step.kind == kind);
        let (Some(start), Some(end)) = (place(from.kind()), place(goal_kind)) else { return Ok(None) };
        let mut distances: BTreeMap<String, usize> = BTreeMap::from([(from.as_str().to_owned(), 0)]);
        let mut steps: BTreeMap<String, Vec<Step>> = BTreeMap::new();
        let mut reached: BTreeSet<String> = BTreeSet::new();
        let mut ends = Vec::new();
        let mut layer = vec![from.as_str().to_owned()];
        let mut distance = 0;
        while !layer.is_empty() && reached.is_empty() {
            let mut next_layer = Vec::new();
            for urn in &layer {
                let is_goal = match goal {
                    Goal::Kind(kind) => kind_of(urn) == kind,
                    Goal::Record(goal) => urn == goal.as_str(),
                };
                if is_goal && distance > 0 {
                    reached.insert(urn.clone());
                    continue;
                }
                let onward = self.steps(path, urn, start <= end)?;
                if onward.is_empty() {
                    ends.push(End { urn: urn.clone(), why: self.why_it_ends(path, urn, start <= end)? });
                }
                for (_, to) in &onward {
                    if !distances.contains_key(to) {
                        distances.insert(to.clone(), distance + 1);
                        next_layer.push(to.clone());
                    }
                }
                steps.insert(urn.clone(), onward);
            }
            layer = next_layer;
            distance += 1;
        }
        let length = distance - 1;
        let tree = match reached.is_empty() {
            true => None,
            false => self.tree(from.as_str(), "", 0, length, &distances, &steps, &reached)?,
        };
        let count = tree.as_ref().map_or(0, Stop::leaves);
        Ok(Some(Paths { count, steps: if count > 0 { length } else { 0 }, tree, ends }))
    }

    #[expect(clippy::too_many_arguments, reason = "what the search found, handed down")]
    fn tree(
        &self,
        urn: &str,
        by: &'static str,
        distance: usize,
        length: usize,
        distances: &BTreeMap<String, usize>,
        steps: &BTreeMap<String, Vec<Step>>,
        reached: &BTreeSet<String>,
    ) -> Result<Option<Stop>, Error> {
        let mut next = Vec::new();
        if !reached.contains(urn) {
            if distance == length {
                return Ok(None);
            }
            for (by, to) in steps.get(urn).into_iter().flatten() {
                if distances.get(to) == Some(&(distance + 1)) {
                    next.extend(self.tree(to, by, distance + 1, length, distances, steps, reached)?);
                }
            }
            if next.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(Stop { urn: urn.to_owned(), title: self.title(urn)?, by, next }))
    }

    fn title(&self, urn: &str) -> Result<Option<String>, Error> {
        let found =
            rows(&self.connection, "SELECT title FROM records WHERE urn = ?1", [urn], |row| row.get(0))?;
        Ok(found.into_iter().next())
    }

    /// Returns the records that one step leads to, each once.
    fn steps(&self, path: &[PathStep], urn: &str, forward: bool) -> Result<Vec<Step>, Error> {
        let kind = kind_of(urn);
        let Some(place) = path.iter().position(|step| step.kind == kind) else { return Ok(Vec::new()) };
        let mut steps: BTreeMap<String, &'static str> = BTreeMap::new();
        let mut add = |by: &'static str, sql: &str, link: Option<&str>, to_kind: &str| -> Result<(), Error> {
            let Some(link) = link else { return Ok(()) };
            for to in rows(&self.connection, sql, [urn, link], |row| row.get::<_, String>(0))? {
                if kind_of(&to) == to_kind {
                    steps.entry(to).or_insert(by);
                }
            }
            Ok(())
        };
        let out = "SELECT to_urn FROM links WHERE from_urn = ?1 AND kind = ?2 ORDER BY 1";
        let back = "SELECT from_urn FROM links WHERE to_urn = ?1 AND kind = ?2 ORDER BY 1";
        if forward {
            let PathStep { names, named_by, .. } = path[place];
            if let (Some(by), Some(next)) = (names, path.get(place + 1)) {
                add(by, out, names, next.kind)?;
                add(by, back, named_by, next.kind)?;
            }
            add("child_of", out, Some("child_of"), kind)?;
        } else {
            if let Some(PathStep { kind: before, names, named_by }) =
                place.checked_sub(1).map(|before| path[before])
            {
                add("named_by", back, names, before)?;
                add("named_by", out, named_by, before)?;
            }
            add("parent_of", back, Some("child_of"), kind)?;
        }
        Ok(steps.into_iter().map(|(to, by)| (by, to)).collect())
    }

    fn why_it_ends(&self, path: &[PathStep], urn: &str, forward: bool) -> Result<String, Error> {
        let kind = kind_of(urn);
        if self.title(urn)?.is_none() {
            return Ok(format!("it is not loaded: `phalanx etl run {kind}` may bring it"));
        }
        let place = path.iter().position(|step| step.kind == kind).unwrap_or_default();
        let next = if forward { path.get(place + 1) } else { place.checked_sub(1).map(|at| &path[at]) };
        Ok(next
            .map_or_else(|| "the way ends here".to_owned(), |next| format!("it leads to no {}", next.kind)))
    }
}

impl Stop {
    fn leaves(&self) -> usize {
        if self.next.is_empty() { 1 } else { self.next.iter().map(Self::leaves).sum() }
    }
}

fn kind_of(urn: &str) -> &str {
    urn.split("::").nth(2).unwrap_or_default()
}
