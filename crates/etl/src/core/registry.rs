//! The set of providers, checked as a whole.

use std::collections::{BTreeMap, BTreeSet};

/// Why a set of providers was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two providers have the same id.
    #[error("provider `{0}` is registered twice")]
    Duplicate(String),
    /// A provider depends on one that is not in the set.
    #[error("provider `{provider}` depends on `{dependency}`, which is not registered; there are: {known}")]
    UnknownDependency {
        /// Who depends.
        provider: String,
        /// On what.
        dependency: String,
        /// What is registered.
        known: String,
    },
    /// Providers depend on each other in a circle.
    #[error("providers depend on each other in a circle: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Somebody asked for a provider that is not in the set.
    #[error("there is no provider `{id}`; there are: {known}")]
    Unknown {
        /// What was asked for.
        id: String,
        /// What is registered.
        known: String,
    },
}

/// A checked set of providers: every dependency exists and there is no circle.
///
/// ```
/// use phalanx_etl::core::registry::Registry;
///
/// let registry = Registry::new([("capec", vec!["cwe"]), ("cwe", vec![])])?;
/// assert_eq!(registry.order(), ["cwe", "capec"]);
/// let circle = Registry::new([("a", vec!["b"]), ("b", vec!["a"])]).unwrap_err();
/// assert_eq!(circle.to_string(), "providers depend on each other in a circle: a -> b -> a");
/// # Ok::<(), phalanx_etl::core::registry::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    dependencies: BTreeMap<String, BTreeSet<String>>,
    order: Vec<String>,
}

/// A provider that runs because another one needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Who will run.
    pub id: String,
    /// Who needs it; `None` where it was asked for itself.
    pub by: Option<String>,
}

impl Registry {
    /// Checks the whole set and works out the order.
    pub fn new<'a>(providers: impl IntoIterator<Item = (&'a str, Vec<&'a str>)>) -> Result<Self, Error> {
        let mut dependencies = BTreeMap::new();
        for (id, needs) in providers {
            let needs: BTreeSet<String> = needs.into_iter().map(str::to_owned).collect();
            if dependencies.insert(id.to_owned(), needs).is_some() {
                return Err(Error::Duplicate(id.to_owned()));
            }
        }
        for (provider, needs) in &dependencies {
            if let Some(dependency) = needs.iter().find(|need| !dependencies.contains_key(*need)) {
                return Err(Error::UnknownDependency {
                    provider: provider.clone(),
                    dependency: dependency.clone(),
                    known: names(&dependencies),
                });
            }
        }
        let order = topological(&dependencies)?;
        Ok(Self { dependencies, order })
    }

    /// Every id, dependencies before dependents, otherwise by name.
    pub fn order(&self) -> &[String] {
        &self.order
    }

    /// What `id` depends on.
    pub fn dependencies(&self, id: &str) -> impl Iterator<Item = &str> {
        self.dependencies.get(id).into_iter().flatten().map(String::as_str)
    }

    /// `ids` and what they need that is not `satisfied` yet, in the order they start.
    pub fn closure(&self, ids: &[String], satisfied: &BTreeSet<String>) -> Result<Vec<Needed>, Error> {
        let mut needed: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for id in ids {
            if !self.dependencies.contains_key(id) {
                return Err(Error::Unknown { id: id.clone(), known: names(&self.dependencies) });
            }
            needed.insert(id, None);
        }
        let mut open: Vec<&str> = needed.keys().copied().collect();
        while let Some(id) = open.pop() {
            for need in self.dependencies(id).filter(|need| !satisfied.contains(*need)) {
                needed.entry(need).or_insert_with(|| {
                    open.push(need);
                    Some(id.to_owned())
                });
            }
        }
        Ok(self
            .order
            .iter()
            .filter_map(|id| needed.get(id.as_str()).map(|by| Needed { id: id.clone(), by: by.clone() }))
            .collect())
    }
}

fn names(dependencies: &BTreeMap<String, BTreeSet<String>>) -> String {
    dependencies.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Kahn's algorithm; what is left over when nothing is free holds a circle.
fn topological(dependencies: &BTreeMap<String, BTreeSet<String>>) -> Result<Vec<String>, Error> {
    let mut left: BTreeMap<&str, BTreeSet<&str>> = dependencies
        .iter()
        .map(|(id, needs)| (id.as_str(), needs.iter().map(String::as_str).collect()))
        .collect();
    let mut order = Vec::with_capacity(left.len());
    while let Some(free) = left.iter().find(|(_, needs)| needs.is_empty()).map(|(&id, _)| id) {
        left.remove(free);
        for needs in left.values_mut() {
            needs.remove(free);
        }
        order.push(free.to_owned());
    }
    if left.is_empty() { Ok(order) } else { Err(Error::Cycle(circle(&left))) }
}

/// Follows first dependencies until an id comes again: everybody left depends on somebody left.
fn circle(left: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let mut path: Vec<&str> = Vec::new();
    let mut next = left.keys().next().copied();
    while let Some(id) = next {
        if let Some(start) = path.iter().position(|&seen| seen == id) {
            path.push(id);
            return path[start..].iter().map(|&id| id.to_owned()).collect();
        }
        path.push(id);
        next = left[id].first().copied();
    }
    path.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|&id| id.to_owned()).collect()
    }

    #[test]
    fn an_unknown_dependency_is_refused_with_what_there_is() {
        let refused = Registry::new([("cve", vec!["cwe"]), ("asvs", vec![])]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "provider `cve` depends on `cwe`, which is not registered; there are: asvs, cve"
        );
    }

    #[test]
    fn a_circle_is_named_without_who_merely_leads_into_it() {
        let refused = Registry::new([("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["d"]), ("d", vec!["b"])])
            .unwrap_err();
        assert_eq!(refused, Error::Cycle(owned(&["b", "c", "d", "b"])));
        let own = Registry::new([("a", vec!["a"])]).unwrap_err();
        assert_eq!(own, Error::Cycle(owned(&["a", "a"])));
    }

    #[test]
    fn the_same_id_twice_is_refused() {
        assert_eq!(
            Registry::new([("a", vec![]), ("a", vec![])]).unwrap_err(),
            Error::Duplicate("a".to_owned())
        );
    }

    #[test]
    fn what_is_asked_for_brings_what_it_needs_unless_that_is_satisfied() {
        let registry = Registry::new([
            ("attack", vec!["capec"]),
            ("capec", vec!["cwe"]),
            ("cwe", vec![]),
            ("x", vec![]),
        ])
        .unwrap();
        let needed = registry.closure(&owned(&["attack"]), &BTreeSet::new()).unwrap();
        let by = |id: &str, by: Option<&str>| Needed { id: id.to_owned(), by: by.map(str::to_owned) };
        assert_eq!(needed, [by("cwe", Some("capec")), by("capec", Some("attack")), by("attack", None)]);
        let satisfied = BTreeSet::from(["capec".to_owned()]);
        assert_eq!(registry.closure(&owned(&["attack"]), &satisfied).unwrap(), [by("attack", None)]);
        assert!(matches!(registry.closure(&owned(&["y"]), &satisfied), Err(Error::Unknown { .. })));
    }
}
