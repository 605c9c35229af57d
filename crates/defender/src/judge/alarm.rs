//! Alarms: their ids, their sentences, and how they are published.

use phalanx_spc::numeric::short;
use phalanx_spc::rules::Rule;
use serde_json::json;

use super::Run;
use super::rule::Found;
use crate::digest;
use crate::record::{Alarm, AlarmState, Chamber, Limits};
use crate::strategy::{Chart, ChartRule, Check};

/// The id of an alarm: the first 32 hex digits of the SHA-256 of chamber, context, indicator and rule. It can stand in
/// subjects, keys, addresses and message ids, and whoever computes it again gets the same.
///
/// ```
/// use phalanx_defender::judge::alarm::id;
/// use phalanx_defender::record::Chamber;
/// let chamber = Chamber::new("etch-01", "A")?;
/// assert_eq!(id(&chamber, "ctx_1", "rf-power", "limits").len(), 32);
/// assert_ne!(id(&chamber, "ctx_1", "rf-power", "limits"), id(&chamber, "ctx_2", "rf-power", "limits"));
/// # Ok::<(), phalanx_cluster::names::NameError>(())
/// ```
pub fn id(chamber: &Chamber, context: &str, indicator: &str, rule: &str) -> String {
    digest::hex(&digest::digest(&["alarm", chamber.tool(), chamber.chamber(), context, indicator, rule]))
}

/// Where an alarm is published.
pub fn subject(chamber: &Chamber) -> String {
    format!("alarm.{}.{}", chamber.tool(), chamber.chamber())
}

/// The message id under which an alarm is published: its own when it is raised, and another when it is cleared, lest the
/// second be taken for a repetition of the first.
pub fn message_id(alarm: &Alarm) -> String {
    match alarm.cleared {
        None => (*alarm.id).to_owned(),
        Some(_) => format!("{}-cleared", alarm.id),
    }
}

/// Whether the message of this context raised or cleared the alarm: then it is published.
pub fn is_news(alarm: &Alarm, context: &str) -> bool {
    match &alarm.cleared {
        None => *alarm.context == *context,
        Some((cleared, _)) => **cleared == *context,
    }
}

/// An alarm as it is published.
pub fn alarm_json(alarm: &Alarm) -> serde_json::Value {
    json!({
        "alarmId": &*alarm.id,
        "toolId": alarm.chamber.tool(),
        "chamberId": alarm.chamber.chamber(),
        "contextId": &*alarm.context,
        "indicator": &*alarm.indicator,
        "rule": &*alarm.rule,
        "severity": alarm.severity,
        "state": alarm.state,
        "value": alarm.value,
        "limit": alarm.limit,
        "raisedAt": alarm.raised_at.to_string(),
        "clearedAt": alarm.cleared.as_ref().map(|(_, at)| at.to_string()),
        "clearedByContextId": alarm.cleared.as_ref().map(|(context, _)| &**context),
        "message": alarm.message,
    })
}

/// An alarm of a rule that was just broken.
pub(super) fn raise(
    run: &Run<'_>,
    chart: &Chart,
    rule: &ChartRule,
    value: f64,
    limits: &Limits,
    found: &Found,
) -> Alarm {
    let name = rule.check.name();
    Alarm {
        id: id(run.chamber, run.context, &chart.name, name).into(),
        chamber: run.chamber.clone(),
        raised_at: run.timestamp,
        indicator: chart.name.clone(),
        rule: name.into(),
        severity: rule.severity,
        value: Some(value),
        limit: found.limit,
        context: run.context.clone(),
        state: AlarmState::Open,
        cleared: None,
        message: format!(
            "{}, chart {}: {} in run {} {} (rule {name}).",
            run.chamber,
            chart.name,
            short(value),
            run.context,
            breach(&rule.check, limits, found),
        ),
    }
}

/// What a value did, as the end of a sentence.
fn breach(check: &Check, limits: &Limits, found: &Found) -> String {
    let (limit, statistic) = (found.limit.unwrap_or_default(), found.statistic.unwrap_or_default());
    let (side, which) = if found.is_upper { ("above", "upper") } else { ("below", "lower") };
    match check {
        Check::Run(Rule::Limits | Rule::Nelson1 | Rule::We1) => {
            format!("is {side} the {which} limit {}", short(limit))
        }
        Check::Ewma(_) => format!(
            "takes the moving average to {}, {side} its {which} limit {}",
            short(statistic),
            short(limit)
        ),
        Check::Cusum(_) => format!(
            "takes the {which} cumulative sum to {}, above its limit {}",
            short(statistic),
            short(limit)
        ),
        Check::Run(_) | Check::Trend(_) => {
            let end = |limit: Option<f64>| limit.map_or("none".to_owned(), short);
            format!(
                "completes a pattern: {}; the centre is {}, the limits are {} and {}",
                check.definition(),
                short(limits.center),
                end(limits.lcl),
                end(limits.ucl)
            )
        }
    }
}
