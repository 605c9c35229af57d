//! Alarms: what was found, and what people said of it.

use axum::Json;
use axum::extract::{Path, Query, State};
use jiff::{SignedDuration, Timestamp};
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::parameters::{chamber, limit, moment, of_store};
use crate::judge::alarm::alarm_json;
use crate::record::{Acknowledgement, Alarm, AlarmState, Severity};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only of this tool; needs a chamber.
    tool: Option<String>,
    /// Only of this chamber; needs a tool.
    chamber: Option<String>,
    /// Only `open`, `acknowledged` or `cleared` ones.
    state: Option<String>,
    /// Only `info`, `warning` or `critical` ones.
    severity: Option<String>,
    /// Raised since this time; the last 7 days by default.
    since: Option<String>,
    /// How many, 1 to 1000; 100 by default.
    limit: Option<usize>,
    /// Where the next page begins, as the last one said.
    page: Option<String>,
}

/// A request looks at no more pages of the store than this; the answer says where the next one goes on.
const PAGES: usize = 100;

/// A part of a list of alarms, the newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct AlarmList {
    alarms: Vec<Value>,
    /// Where the next page begins, if there is more.
    next: Option<String>,
}

/// Alarms, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/alarms",
    tag = "alarms",
    params(Which),
    responses((status = 200, body = AlarmList), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Query(which): Query<Which>,
) -> Result<Json<AlarmList>, ApiError> {
    let of = match (&which.tool, &which.chamber) {
        (Some(tool), Some(name)) => Some(chamber(tool, name)?),
        (None, None) => None,
        _ => return Err(ApiError::bad_request("name tool and chamber, or neither")),
    };
    for (name, given, allowed) in [
        ("state", &which.state, AlarmState::ALL.map(AlarmState::name)),
        ("severity", &which.severity, Severity::ALL.map(Severity::name)),
    ] {
        if let Some(given) = given.as_deref().filter(|given| !allowed.contains(given)) {
            return Err(ApiError::bad_request(format!(
                "{name} is {given:?}; allowed are {}",
                allowed.join(", ")
            )));
        }
    }
    let limit = limit(which.limit, 100, 1_000)?;
    let week_ago = Timestamp::now() - SignedDuration::from_hours(7 * 24);
    let since = moment("since", which.since.as_deref())?.unwrap_or(week_ago);
    let attached = api.attached()?;
    let is_wanted = |shown: &Value| {
        let is = |name: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| shown[name] == **wanted)
        };
        is("state", &which.state) && is("severity", &which.severity)
    };
    let store = attached.defender.store();
    let (mut alarms, mut next) = (Vec::new(), which.page.clone());
    for _ in 0..PAGES {
        let page = store.alarms(of.as_ref(), since, next.as_deref(), limit - alarms.len()).await;
        let page = page.map_err(of_store)?;
        let found = page.alarms.iter().map(|(alarm, said)| shown(alarm, said.as_ref()));
        alarms.extend(found.filter(is_wanted));
        next = page.next;
        if next.is_none() || alarms.len() == limit {
            break;
        }
    }
    Ok(Json(AlarmList { alarms, next }))
}

/// One alarm.
#[utoipa::path(
    get,
    path = "/api/v1/alarms/{id}",
    tag = "alarms",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = Value),
        (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn show(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    Ok(Json(find(&api, &id).await?))
}

/// The alarm of that id.
async fn find(api: &Api, id: &str) -> Result<Value, ApiError> {
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ApiError::bad_request(format!("{id:?} is no id of an alarm: it has 32 hex digits")));
    }
    let found = api.attached()?.defender.store().alarm(id).await.map_err(of_store)?;
    let Some((alarm, said)) = found else {
        return Err(ApiError::not_found(format!("there is no alarm {id}; /api/v1/alarms lists them")));
    };
    Ok(shown(&alarm, said.as_ref()))
}

/// An alarm as it is published, with what people said of it.
fn shown(alarm: &Alarm, said: Option<&Acknowledgement>) -> Value {
    let mut shown = alarm_json(alarm);
    if let Some(said) = said {
        shown["acknowledgement"] =
            json!({ "by": said.by, "at": said.at.to_string(), "comment": said.comment });
        if alarm.state == AlarmState::Open {
            shown["state"] = "acknowledged".into();
        }
    }
    shown
}

/// What a person says of an alarm.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saying {
    /// Who.
    by: String,
    /// What they have to say.
    #[serde(default)]
    comment: String,
}

/// The longest a name or a comment may be.
const LONGEST: usize = 2_000;

/// Notes that a person has seen an alarm.
#[utoipa::path(
    post,
    path = "/api/v1/alarms/{id}/ack",
    tag = "alarms",
    params(("id" = String, Path)),
    request_body = Saying,
    security(("token" = [])),
    responses(
        (status = 200, body = Value),
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn acknowledge(
    State(api): State<Api>,
    Path(id): Path<String>,
    Json(saying): Json<Saying>,
) -> Result<Json<Value>, ApiError> {
    if saying.by.trim().is_empty() {
        return Err(ApiError::bad_request("say who has seen it: \"by\" is empty"));
    }
    if saying.by.len() > LONGEST || saying.comment.len() > LONGEST {
        return Err(ApiError::bad_request(format!("name and comment have at most {LONGEST} bytes each")));
    }
    find(&api, &id).await?;
    let said = Acknowledgement { by: saying.by, at: Timestamp::now(), comment: saying.comment };
    api.attached()?.defender.store().acknowledge(&id, &said).await.map_err(of_store)?;
    Ok(Json(json!({ "alarmId": id, "by": said.by, "at": said.at.to_string() })))
}
