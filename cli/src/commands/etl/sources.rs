//! Where providers read, as `run` and `serve` are told.

use std::collections::BTreeMap;

use clap::Args;
use phalanx_etl::engine::Options;
use phalanx_etl::source::Source;

use super::run::wrong_use;

#[derive(Args)]
pub(super) struct Sources {
    /// Where a provider reads; asvs@5.0.0=FILE also says which version that is.
    #[arg(long, value_name = "ID=URL|FILE|DIR", value_parser = parse_source)]
    source: Vec<(String, Source)>,

    /// Where the other providers read: a folder or URL with a folder for each.
    #[arg(long, value_name = "DIR|URL")]
    mirror: Option<String>,
}

fn parse_source(text: &str) -> Result<(String, Source), String> {
    let (id, place) = text.split_once('=').ok_or("it should read ID=URL, ID=FILE or ID=DIR")?;
    let (id, version) = match id.split_once('@') {
        Some((id, version)) => (id, Some(version.to_owned())),
        None => (id, None),
    };
    if id.is_empty() || place.is_empty() || version.as_ref().is_some_and(String::is_empty) {
        return Err("it should read ID=URL, ID=FILE or ID=DIR".to_owned());
    }
    Ok((id.to_owned(), Source::parse(place, version)))
}

impl Sources {
    /// Sets the sources of the engine, and the credentials that its providers ask for.
    pub(super) fn apply(&self, options: &mut Options) {
        let variables = phalanx_etl::providers::all().into_iter().filter_map(|one| one.credential_variable());
        let credential = |variable: &str| std::env::var(variable).ok().filter(|value| !value.is_empty());
        options.credentials =
            variables.filter_map(|variable| Some((variable.to_owned(), credential(variable)?))).collect();
        options.mirror = self.mirror.as_deref().map(|mirror| Source::parse(mirror, None));
        options.sources = by_id("--source", &self.source, options);
    }
}

/// What was said of each provider: of one there is, and once.
pub(super) fn by_id<T: Clone>(flag: &str, given: &[(String, T)], options: &Options) -> BTreeMap<String, T> {
    let mut all = BTreeMap::new();
    for (id, value) in given {
        if !options.providers.iter().any(|one| one.id == *id) {
            let known: Vec<_> = options.providers.iter().map(|one| one.id.as_str()).collect();
            wrong_use(&format!("{flag} {id}: there is no provider `{id}`; there are: {}", known.join(", ")));
        }
        if all.insert(id.clone(), value.clone()).is_some() {
            wrong_use(&format!("{flag} {id}: given twice"));
        }
    }
    all
}
