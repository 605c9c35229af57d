//! The statements, prepared once for each session.

use futures_util::future::try_join_all;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;

use super::fault::prepare_fault;
use super::rows::{ALARM_COLUMNS, CHUNKS_AT_ONCE, STATE_COLUMNS, U_CHART_COLUMNS};
use crate::store::StoreError;

/// Declares the struct and how each of its fields is prepared: `$ks` is the keyspace.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident: $($cql:expr),+;)*) => {
        pub(super) struct Statements {
            $($(#[$doc])* pub(super) $name: PreparedStatement,)*
        }

        impl Statements {
            pub(super) async fn prepare(session: &Session, keyspace: &str) -> Result<Self, StoreError> {
                let texts = [$([$($cql),+].concat().replace("{ks}", keyspace)),*];
                let prepare = async |text: String| {
                    let mut statement = session.prepare(text).await.map_err(|e| prepare_fault(&e))?;
                    // Every write names its time, or replaces what is there by the same: once more does no harm.
                    statement.set_is_idempotent(true);
                    Ok::<_, StoreError>(statement)
                };
                let mut prepared = try_join_all(texts.into_iter().map(prepare)).await?.into_iter();
                let mut next = || prepared.next().ok_or_else(|| StoreError::Refused("a statement is missing".to_owned()));
                Ok(Self { $($name: next()?),* })
            }
        }
    };
}

const OF_CHAMBER: &str = " WHERE tool_id = ? AND chamber_id = ?";

statements! {
    ping: "SELECT tool_id FROM {ks}.chamber_metadata LIMIT 1";

    put_chunk: "INSERT INTO {ks}.t_charts (tool_id, chamber_id, context_id, chunk, chunks, data) VALUES (?, ?, ?, ?, ?, ?)";
    chunks: "SELECT chunk, chunks, data FROM {ks}.t_charts", OF_CHAMBER, " AND context_id = ? AND chunk >= ? LIMIT ", CHUNKS_AT_ONCE;

    put_u_chart: "INSERT INTO {ks}.u_charts (tool_id, chamber_id, ", U_CHART_COLUMNS, ") VALUES (:tool_id, :chamber_id, :indicator, :timestamp,
        :context_id, :timestamp_ns, :value, :center, :lcl, :ucl, :sigma, :n, :flags, :position, :take, :strategy) USING TIMESTAMP :written_at";
    u_charts: "SELECT ", U_CHART_COLUMNS, " FROM {ks}.u_charts", OF_CHAMBER, " AND indicator = ? AND timestamp < ? LIMIT ?";

    put_indicator: "INSERT INTO {ks}.indicators (tool_id, chamber_id, indicator) VALUES (?, ?, ?) USING TIMESTAMP ?";
    indicators: "SELECT indicator FROM {ks}.indicators", OF_CHAMBER;

    put_context: "INSERT INTO {ks}.contexts (tool_id, chamber_id, position, take, context_id, timestamp, timestamp_ns, strategy, outcome)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    contexts: "SELECT position, take, context_id, timestamp, timestamp_ns, strategy, outcome FROM {ks}.contexts", OF_CHAMBER, " AND position <= ? LIMIT ?";
    take_at: "SELECT take FROM {ks}.contexts", OF_CHAMBER, " AND position = ?";

    put_state: "INSERT INTO {ks}.chart_state (tool_id, chamber_id, ", STATE_COLUMNS, ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    prune_states: "DELETE FROM {ks}.chart_state USING TIMESTAMP ?", OF_CHAMBER, " AND position < ?";
    state_at: "SELECT ", STATE_COLUMNS, " FROM {ks}.chart_state", OF_CHAMBER, " AND position = ?";
    newest_state: "SELECT ", STATE_COLUMNS, " FROM {ks}.chart_state", OF_CHAMBER, " LIMIT 1";

    put_alarm: "INSERT INTO {ks}.alarms (", ALARM_COLUMNS, ") VALUES (:tool_id, :chamber_id, :raised_at, :alarm_id, :raised_at_ns,
        :indicator, :rule, :severity, :value, :broken_limit, :context_id, :state, :cleared_by, :cleared_at, :cleared_at_ns, :message,
        :position, :take) USING TIMESTAMP :written_at";
    put_alarm_of_day: "INSERT INTO {ks}.alarms_by_day (day, ", ALARM_COLUMNS, ") VALUES (:day, :tool_id, :chamber_id, :raised_at, :alarm_id,
        :raised_at_ns, :indicator, :rule, :severity, :value, :broken_limit, :context_id, :state, :cleared_by, :cleared_at, :cleared_at_ns,
        :message, :position, :take) USING TIMESTAMP :written_at";
    put_alarm_by_id: "INSERT INTO {ks}.alarms_by_id (alarm_id, tool_id, chamber_id, raised_at) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    alarm_by_id: "SELECT tool_id, chamber_id, raised_at FROM {ks}.alarms_by_id WHERE alarm_id = ?";
    alarm: "SELECT ", ALARM_COLUMNS, " FROM {ks}.alarms", OF_CHAMBER, " AND raised_at = ? AND alarm_id = ?";
    /// From one millisecond to another, both included, the newest first.
    alarms: "SELECT ", ALARM_COLUMNS, " FROM {ks}.alarms", OF_CHAMBER, " AND raised_at >= ? AND raised_at <= ? LIMIT ?";
    /// What is left of one millisecond.
    alarms_at: "SELECT ", ALARM_COLUMNS, " FROM {ks}.alarms", OF_CHAMBER, " AND raised_at = ? AND alarm_id > ? LIMIT ?";
    alarms_of_day: "SELECT ", ALARM_COLUMNS, " FROM {ks}.alarms_by_day WHERE day = ? AND raised_at >= ? AND raised_at <= ? LIMIT ?";
    alarms_of_day_at: "SELECT ", ALARM_COLUMNS, " FROM {ks}.alarms_by_day WHERE day = ? AND raised_at = ? AND alarm_id > ? LIMIT ?";

    /// Of two sayings the later stays.
    acknowledge: "INSERT INTO {ks}.alarm_acknowledgements (alarm_id, acknowledged_by, acknowledged_at, comment) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    acknowledgement: "SELECT acknowledged_by, acknowledged_at, comment FROM {ks}.alarm_acknowledgements WHERE alarm_id = ?";

    put_metadata: "INSERT INTO {ks}.chamber_metadata (tool_id, chamber_id, svid_count, collection_freq_hz, context_duration_seconds, weight,
        last_updated) VALUES (?, ?, ?, ?, ?, ?, ?)";
    metadata: "SELECT tool_id, chamber_id, svid_count, collection_freq_hz, context_duration_seconds, weight, last_updated FROM {ks}.chamber_metadata";
}
