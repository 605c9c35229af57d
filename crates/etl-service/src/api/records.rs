//! What the engine has gathered.

use axum::Json;
use axum::extract::{Path, Query as Parameters, State};
use phalanx_etl::Urn;
use phalanx_etl::lookup;
use phalanx_etl::store::{Goal, Hit, Paths, Query, RecordView, parse_since};
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;

/// As many hits as a search gives at most.
const LONGEST: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Search {
    /// Words, all of which must be there; "several words" in quotes stand next to each other, `inject*` is a beginning.
    q: String,
    /// Only of these kinds, such as `cve,cwe`.
    r#type: Option<String>,
    /// Only of this sort within its kind, such as `weakness`.
    subtype: Option<String>,
    /// Only so severe, in any case of letters.
    severity: Option<String>,
    /// Only what was published or changed since: `2024`, `2024-05` or `2024-05-01`.
    since: Option<String>,
    /// How many at most, 1 to 1,000; 20 by default.
    limit: Option<usize>,
}

/// Records that fit, best first.
#[derive(Serialize, ToSchema)]
pub(super) struct Hits {
    hits: Vec<Hit>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FromTo {
    /// Where to begin: an id such as CVE-2023-27314 or CWE-79, or a URN.
    from: String,
    /// Where to go: a kind (cve, cwe, capec, attack), an id or a URN.
    to: String,
}

/// One record, and all that is known of it.
#[utoipa::path(
    get,
    path = "/api/v1/etl/records/{urn}",
    tag = "records",
    params(("urn" = String, Path, description = "such as v2e::nvd::cve::CVE-2023-27314; a slash in it is written %2F")),
    responses((status = 200, body = RecordView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody))
)]
pub(super) async fn record(
    State(api): State<Api>,
    Path(urn): Path<String>,
) -> Result<Json<RecordView>, ApiError> {
    let urn: Urn =
        urn.parse().map_err(|error: phalanx_etl::UrnError| ApiError::bad_request(error.to_string()))?;
    let name = urn.clone();
    let found = api.readers.read(move |reader| lookup::record(reader, &name)).await?;
    found.map(Json).ok_or_else(|| ApiError::not_found(format!("{urn} is not in the store")))
}

/// Records by their words, best first.
#[utoipa::path(
    get,
    path = "/api/v1/etl/search",
    tag = "records",
    params(Search),
    responses((status = 200, body = Hits), (status = 400, body = ErrorBody))
)]
pub(super) async fn search(
    State(api): State<Api>,
    Parameters(search): Parameters<Search>,
) -> Result<Json<Hits>, ApiError> {
    let limit = search.limit.unwrap_or(20);
    if !(1..=LONGEST).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit is {limit}; allowed are 1 to {LONGEST}")));
    }
    let types: Vec<String> = match &search.r#type {
        Some(types) => types.split(',').map(|one| one.trim().to_owned()).collect(),
        None => Vec::new(),
    };
    if let Some(unknown) = types.iter().find(|one| !api.ids.contains(one)) {
        return Err(ApiError::bad_request(format!("type is {unknown}; there are: {}", api.ids.join(", "))));
    }
    let since = search.since.as_deref().map(parse_since).transpose();
    let since = since.map_err(|why| ApiError::bad_request(format!("since: {why}")))?;
    let query =
        Query { text: search.q, types, subtype: search.subtype, severity: search.severity, since, limit };
    let hits = api.readers.read(move |reader| reader.search(&query)).await?;
    Ok(Json(Hits { hits }))
}

/// All shortest paths along CVE → CWE → CAPEC → ATT&CK, or back, as a tree; says where paths end.
#[utoipa::path(
    get,
    path = "/api/v1/etl/path",
    tag = "records",
    params(FromTo),
    responses((status = 200, body = Paths), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody))
)]
pub(super) async fn path(
    State(api): State<Api>,
    Parameters(FromTo { from, to }): Parameters<FromTo>,
) -> Result<Json<Paths>, ApiError> {
    let urn = |text: &str| Urn::guess(text).map_err(|error| ApiError::bad_request(error.to_string()));
    let from = urn(&from)?;
    let path = lookup::path();
    let kinds: Vec<&str> = path.iter().map(|step| step.kind).collect();
    let goal = if kinds.contains(&to.as_str()) { Goal::Kind(to) } else { Goal::Record(urn(&to)?) };
    let start = from.clone();
    let found = api.readers.read(move |reader| {
        let is_known = lookup::record(reader, &start)?.is_some();
        Ok((is_known, reader.paths(&path, &start, &goal)?))
    });
    match found.await? {
        (false, _) => Err(ApiError::not_found(format!("{from} is not in the store"))),
        (true, None) => Err(ApiError::bad_request(format!("a path goes through {}", kinds.join(", ")))),
        (true, Some(paths)) => Ok(Json(paths)),
    }
}
