//! The tables: declared once, and from that made, shown and compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

use futures_util::future::try_join_all;
use scylla::client::session::Session;
use scylla::response::PagingState;
use scylla::statement::Statement;
use scylla::value::CqlTimestamp;

use super::config::check_keyspace;
use super::fault::{fault, prepare_fault};
use crate::store::{ALARMS_KEPT, StoreError, T_CHARTS_KEPT, U_CHARTS_KEPT};

type Column = (&'static str, &'static str);

/// How many alarms are written down at once.
const ALARMS_AT_ONCE: usize = 64;

/// The time limit of one change of the schema.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

struct Table {
    name: &'static str,
    about: &'static str,
    partition: &'static [Column],
    /// With their order.
    clustering: &'static [(&'static str, &'static str, &'static str)],
    columns: &'static [Column],
    /// How long a row lives after it was written, in seconds; 0: for ever.
    ttl: u64,
}

const CHAMBER: &[Column] = &[("tool_id", "text"), ("chamber_id", "text")];
const POSITION: &str = "frozen<tuple<bigint, bigint>>";
const ALARM_ORDER: &[(&str, &str, &str)] = &[("raised_at", "timestamp", "desc"), ("alarm_id", "text", "asc")];
const ALARM: &[Column] = &[
    ("raised_at_ns", "int"),
    ("indicator", "text"),
    ("rule", "text"),
    ("severity", "text"),
    ("value", "double"),
    ("limit", "double"),
    ("context_id", "text"),
    ("state", "text"),
    ("cleared_by", "text"),
    ("cleared_at", "timestamp"),
    ("cleared_at_ns", "int"),
    ("message", "text"),
    ("position", POSITION),
    ("take", "bigint"),
];
/// As `ALARM`, where the chamber is not in the key.
const ALARM_OF_CHAMBER: &[Column] = &[
    ("tool_id", "text"),
    ("chamber_id", "text"),
    ("raised_at_ns", "int"),
    ("indicator", "text"),
    ("rule", "text"),
    ("severity", "text"),
    ("value", "double"),
    ("limit", "double"),
    ("context_id", "text"),
    ("state", "text"),
    ("cleared_by", "text"),
    ("cleared_at", "timestamp"),
    ("cleared_at_ns", "int"),
    ("message", "text"),
    ("position", POSITION),
    ("take", "bigint"),
];

const ALARMS_BY_ID: &str = "alarms_by_id";

const TABLES: &[Table] = &[
    Table {
        name: "t_charts",
        about: "the traces of a run: one Mebo blob for each chunk, and how many chunks there are",
        partition: &[("tool_id", "text"), ("chamber_id", "text"), ("context_id", "text")],
        clustering: &[("chunk", "int", "asc")],
        columns: &[("chunks", "int"), ("data", "blob")],
        ttl: T_CHARTS_KEPT.as_secs(),
    },
    Table {
        name: "u_charts",
        about: "the points of the charts; written with the time stamp of their message and attempt",
        partition: &[("tool_id", "text"), ("chamber_id", "text"), ("indicator", "text")],
        clustering: &[("timestamp", "timestamp", "desc"), ("context_id", "text", "asc")],
        columns: &[
            ("timestamp_ns", "int"),
            ("value", "double"),
            ("center", "double"),
            ("lcl", "double"),
            ("ucl", "double"),
            ("sigma", "double"),
            ("n", "bigint"),
            ("flags", "bigint"),
            ("position", POSITION),
            ("take", "bigint"),
            ("strategy", "text"),
        ],
        ttl: U_CHARTS_KEPT.as_secs(),
    },
    Table {
        name: "indicators",
        about: "the names of the charts a chamber has points of",
        partition: CHAMBER,
        clustering: &[("indicator", "text", "asc")],
        columns: &[],
        ttl: U_CHARTS_KEPT.as_secs(),
    },
    Table {
        name: "contexts",
        about: "which attempt's rows of a message count",
        partition: CHAMBER,
        clustering: &[("position", POSITION, "desc")],
        columns: &[
            ("take", "bigint"),
            ("context_id", "text"),
            ("timestamp", "timestamp"),
            ("timestamp_ns", "int"),
            ("strategy", "text"),
            ("outcome", "text"),
        ],
        ttl: U_CHARTS_KEPT.as_secs(),
    },
    Table {
        name: "chart_state",
        about: "what the charts remember after a message; the last few are kept",
        partition: CHAMBER,
        clustering: &[("position", POSITION, "desc")],
        columns: &[
            ("take", "bigint"),
            ("stamp", "bigint"),
            ("predecessor", POSITION),
            ("context_id", "text"),
            ("stream", "bigint"),
            ("history", "text"),
            ("state", "blob"),
        ],
        ttl: 0,
    },
    Table {
        name: "alarms",
        about: "the alarms of a chamber",
        partition: CHAMBER,
        clustering: ALARM_ORDER,
        columns: ALARM,
        ttl: ALARMS_KEPT.as_secs(),
    },
    Table {
        name: "alarms_by_day",
        about: "the same alarms, for lists over all chambers",
        partition: &[("day", "date")],
        clustering: ALARM_ORDER,
        columns: ALARM_OF_CHAMBER,
        ttl: ALARMS_KEPT.as_secs(),
    },
    Table {
        name: ALARMS_BY_ID,
        about: "where an alarm is found by its id",
        partition: &[("alarm_id", "text")],
        clustering: &[],
        columns: &[("tool_id", "text"), ("chamber_id", "text"), ("raised_at", "timestamp")],
        ttl: ALARMS_KEPT.as_secs(),
    },
    Table {
        name: "alarm_acknowledgements",
        about: "what people said of alarms: processing never touches it",
        partition: &[("alarm_id", "text")],
        clustering: &[],
        columns: &[("acknowledged_by", "text"), ("acknowledged_at", "timestamp"), ("comment", "text")],
        ttl: ALARMS_KEPT.as_secs(),
    },
    Table {
        name: "chamber_metadata",
        about: "what is known of the load of chambers",
        partition: CHAMBER,
        clustering: &[],
        columns: &[
            ("svid_count", "bigint"),
            ("collection_freq_hz", "double"),
            ("context_duration_seconds", "double"),
            ("weight", "bigint"),
            ("last_updated", "timestamp"),
        ],
        ttl: 0,
    },
];

/// How many copies of everything there are, and where.
///
/// ```
/// use phalanx_defender::store::cassandra::Replication;
///
/// let everywhere: Replication = "3".parse()?;
/// assert_eq!(everywhere.to_string(), "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}");
/// let named: Replication = "fab1=3,fab2=2".parse()?;
/// assert_eq!(named.to_string(), "{'class': 'NetworkTopologyStrategy', 'fab1': 3, 'fab2': 2}");
/// assert!("three".parse::<Replication>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replication {
    /// So many in every data centre.
    Everywhere(u32),
    /// So many in each of these data centres.
    Named(BTreeMap<String, u32>),
}

impl FromStr for Replication {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("{text:?} is no replication: `3` for three copies in every data centre, or `dc1=3,dc2=3`")
        };
        let count = |text: &str| text.trim().parse().ok().filter(|n| (1..=100).contains(n)).ok_or_else(bad);
        if !text.contains('=') {
            return Ok(Self::Everywhere(count(text)?));
        }
        let good = |name: &str| {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        };
        let mut named = BTreeMap::new();
        for part in text.split(',') {
            let (name, n) = part.split_once('=').ok_or_else(bad)?;
            let name = name.trim();
            if !good(name) || named.insert(name.to_owned(), count(n)?).is_some() {
                return Err(bad());
            }
        }
        Ok(Self::Named(named))
    }
}

impl std::fmt::Display for Replication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{'class': 'NetworkTopologyStrategy'")?;
        match self {
            Self::Everywhere(n) => write!(f, ", 'replication_factor': {n}")?,
            Self::Named(named) => named.iter().try_for_each(|(name, n)| write!(f, ", '{name}': {n}"))?,
        }
        f.write_str("}")
    }
}

impl Replication {
    /// Whether a keyspace that the server describes so has it.
    fn is(&self, found: &BTreeMap<String, String>) -> bool {
        let class = found.get("class").is_some_and(|class| class.ends_with("NetworkTopologyStrategy"));
        let simple = found.get("class").is_some_and(|class| class.ends_with("SimpleStrategy"));
        let copies: BTreeMap<&str, &str> =
            found.iter().filter(|(key, _)| *key != "class").map(|(key, n)| (&**key, &**n)).collect();
        match self {
            Self::Everywhere(n) => (class || simple) && copies.values().all(|found| **found == n.to_string()),
            Self::Named(named) => {
                class
                    && copies.len() == named.len()
                    && named.iter().all(|(name, n)| copies.get(&**name) == Some(&&*n.to_string()))
            }
        }
    }
}

/// The statements that make everything, for people to read and to run.
pub fn show(keyspace: &str, replication: &Replication) -> Result<String, StoreError> {
    check_keyspace(keyspace)?;
    let mut text = format!("{};\n", create_keyspace(keyspace, replication));
    for table in TABLES {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n-- {}\n{};\n", table.about, create_table(keyspace, table));
    }
    Ok(text)
}

fn create_keyspace(keyspace: &str, replication: &Replication) -> String {
    format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}")
}

/// `limit` is a word of the language.
fn quoted(name: &str) -> &str {
    if name == "limit" { "\"limit\"" } else { name }
}

fn create_table(keyspace: &str, table: &Table) -> String {
    let mut text = format!("CREATE TABLE IF NOT EXISTS {keyspace}.{} (\n", table.name);
    let clustering = table.clustering.iter().map(|(name, kind, _)| (*name, *kind));
    for (name, kind) in table.partition.iter().copied().chain(clustering).chain(table.columns.iter().copied())
    {
        let _ = writeln!(text, "    {} {kind},", quoted(name));
    }
    let partition: Vec<&str> = table.partition.iter().map(|(name, _)| *name).collect();
    let mut key = format!("({})", partition.join(", "));
    for (name, _, _) in table.clustering {
        let _ = write!(key, ", {name}");
    }
    let _ = write!(text, "    PRIMARY KEY ({key})\n)");
    let mut options = Vec::new();
    if table.clustering.iter().any(|(_, _, order)| *order == "desc") {
        let order =
            table.clustering.iter().map(|(name, _, order)| format!("{name} {}", order.to_uppercase()));
        options.push(format!("CLUSTERING ORDER BY ({})", order.collect::<Vec<_>>().join(", ")));
    }
    if table.ttl > 0 {
        options.push(format!("default_time_to_live = {}", table.ttl));
    }
    if !options.is_empty() {
        let _ = write!(text, " WITH {}", options.join("\n    AND "));
    }
    text
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Something was made.
    Made,
    /// Everything was there.
    AlreadyThere,
}

/// Makes what is missing. What is there and differs is refused, and nothing is made then.
pub(super) async fn apply(
    session: &Session,
    keyspace: &str,
    replication: Option<&Replication>,
) -> Result<Applied, StoreError> {
    let found = find(session, keyspace).await?;
    if let (Some(wanted), Some(there)) = (replication, &found.replication)
        && !wanted.is(there)
    {
        return Err(StoreError::Refused(format!(
            "the keyspace {keyspace} has the replication {there:?}, and {wanted} is asked for: \
             change it with ALTER KEYSPACE, then repair"
        )));
    }
    let differences = differences(&found);
    if !differences.is_empty() {
        return Err(differ(keyspace, &differences));
    }
    let missing: Vec<&Table> = TABLES.iter().filter(|table| !found.tables.contains_key(table.name)).collect();
    if found.replication.is_some() && missing.is_empty() {
        return Ok(Applied::AlreadyThere);
    }
    let usual = Replication::Everywhere(3);
    change(session, create_keyspace(keyspace, replication.unwrap_or(&usual))).await?;
    for table in &missing {
        change(session, create_table(keyspace, table)).await?;
    }
    let is_missing = |name: &str| missing.iter().any(|table| table.name == name);
    // Made by a program that did not have the table: its alarms are found by their ids, too.
    if is_missing(ALARMS_BY_ID) && !is_missing("alarms") {
        index_alarms(session, keyspace).await?;
    }
    Ok(Applied::Made)
}

/// Writes down where every alarm there is lies, for as long as it is kept. Should it be interrupted, dropping the table and
/// applying again repeats it.
async fn index_alarms(session: &Session, keyspace: &str) -> Result<(), StoreError> {
    let select = format!(
        "SELECT alarm_id, tool_id, chamber_id, raised_at, TTL(message), WRITETIME(message) FROM {keyspace}.alarms"
    );
    let insert = format!(
        "INSERT INTO {keyspace}.alarms_by_id (alarm_id, tool_id, chamber_id, raised_at) VALUES (?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
    );
    let insert = session.prepare(insert).await.map_err(|e| prepare_fault(&e))?;
    type Row = (String, String, String, CqlTimestamp, Option<i32>, Option<i64>);
    let mut state = PagingState::start();
    loop {
        let page = session.query_single_page(&*select, (), state).await;
        let (page, next) = page.map_err(|e| fault(&e))?;
        let rows = super::rows::all::<Row>(page)?;
        for some in rows.chunks(ALARMS_AT_ONCE) {
            let written = some.iter().map(async |(id, tool, chamber, raised, ttl, at)| {
                let row = (id, tool, chamber, raised, ttl.unwrap_or_default(), at.unwrap_or_default());
                session.execute_unpaged(&insert, row).await.map(drop).map_err(|e| fault(&e))
            });
            try_join_all(written).await?;
        }
        match next.into_paging_control_flow() {
            ControlFlow::Continue(more) => state = more,
            ControlFlow::Break(()) => return Ok(()),
        }
    }
}

/// Refuses tables that are not these.
pub(super) async fn check(session: &Session, keyspace: &str) -> Result<(), StoreError> {
    let found = find(session, keyspace).await?;
    let missing: Vec<&str> =
        TABLES.iter().map(|table| table.name).filter(|name| !found.tables.contains_key(*name)).collect();
    if found.replication.is_none() || !missing.is_empty() {
        let what = match &found.replication {
            None => format!("there is no keyspace {keyspace}"),
            Some(_) => format!("the keyspace {keyspace} lacks {}", missing.join(", ")),
        };
        return Err(StoreError::Refused(format!("{what}: run `phalanx schema apply`")));
    }
    let differences = differences(&found);
    if differences.is_empty() { Ok(()) } else { Err(differ(keyspace, &differences)) }
}

fn differ(keyspace: &str, differences: &[String]) -> StoreError {
    let list = differences.join("; ");
    StoreError::Refused(format!("the keyspace {keyspace} differs from what this program needs: {list}"))
}

/// Changes the schema. The servers agree on each change, and a dropped table is flushed and saved first, so this takes
/// longer than a request for data.
pub(super) async fn change(session: &Session, statement: String) -> Result<(), StoreError> {
    let mut statement = Statement::new(statement);
    statement.set_request_timeout(Some(CHANGE_TIMEOUT));
    session.query_unpaged(statement, ()).await.map(|_| ()).map_err(|e| fault(&e))
}

/// Column to what it is, such as `bigint, key 2 desc`.
type Columns = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct Found {
    replication: Option<BTreeMap<String, String>>,
    tables: BTreeMap<String, (Columns, u64)>,
}

async fn find(session: &Session, keyspace: &str) -> Result<Found, StoreError> {
    let mut found = Found::default();
    let of = "FROM system_schema";
    let rows = query::<(BTreeMap<String, String>,)>(
        session,
        format!("SELECT replication {of}.keyspaces WHERE keyspace_name = ?"),
        keyspace,
    )
    .await?;
    found.replication = rows.into_iter().next().map(|(replication,)| replication);
    let tables = format!("SELECT table_name, default_time_to_live {of}.tables WHERE keyspace_name = ?");
    for (name, ttl) in query::<(String, i32)>(session, tables, keyspace).await? {
        found.tables.insert(name, (Columns::new(), u64::try_from(ttl).unwrap_or(0)));
    }
    let columns = format!(
        "SELECT table_name, column_name, type, kind, position, clustering_order {of}.columns WHERE keyspace_name = ?"
    );
    type Row = (String, String, String, String, i32, String);
    for (table, name, kind, role, position, order) in query::<Row>(session, columns, keyspace).await? {
        if let Some((columns, _)) = found.tables.get_mut(&table) {
            columns.insert(name, described(&kind, &role, position, &order));
        }
    }
    Ok(found)
}

fn described(kind: &str, role: &str, position: i32, order: &str) -> String {
    match role {
        "partition_key" => format!("{kind}, partition key {}", position + 1),
        "clustering" => format!("{kind}, clustering key {} {order}", position + 1),
        "static" => format!("{kind}, static"),
        _ => kind.to_owned(),
    }
}

fn expected(table: &Table) -> Columns {
    let partition = (0..).zip(table.partition);
    let partition = partition.map(|(i, (name, kind))| (*name, described(kind, "partition_key", i, "none")));
    let clustering = (0..).zip(table.clustering);
    let clustering =
        clustering.map(|(i, (name, kind, order))| (*name, described(kind, "clustering", i, order)));
    let columns = table.columns.iter().map(|(name, kind)| (*name, (*kind).to_owned()));
    partition.chain(clustering).chain(columns).map(|(name, what)| (name.to_owned(), what)).collect()
}

/// What is there and is not as it should be, both sides shown. A column more is no harm unless it is part of the key: a
/// newer program may have added it.
fn differences(found: &Found) -> Vec<String> {
    let mut differences = Vec::new();
    for table in TABLES {
        let Some((columns, ttl)) = found.tables.get(table.name) else { continue };
        let expected = expected(table);
        for (name, should) in &expected {
            let is = columns.get(name).map_or("missing", |is| &**is);
            if is != should {
                differences.push(format!("{}.{name} is {is}, should be {should}", table.name));
            }
        }
        for (name, is) in
            columns.iter().filter(|(name, is)| is.contains("key") && !expected.contains_key(*name))
        {
            differences.push(format!("{}.{name} is {is}, should be missing", table.name));
        }
        if *ttl != table.ttl {
            let should = table.ttl;
            differences.push(format!("{}: default_time_to_live is {ttl}, should be {should}", table.name));
        }
    }
    differences
}

async fn query<R>(session: &Session, statement: String, keyspace: &str) -> Result<Vec<R>, StoreError>
where
    R: for<'frame, 'metadata> scylla::deserialize::row::DeserializeRow<'frame, 'metadata>,
{
    let result = session.query_unpaged(statement, (keyspace,)).await.map_err(|e| fault(&e))?;
    super::rows::all(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        let table = |table: &Table| (table.name.to_owned(), (expected(table), table.ttl));
        Found { replication: Some(BTreeMap::new()), tables: TABLES.iter().map(table).collect() }
    }

    #[test]
    fn what_differs_is_named_with_both_sides() {
        assert!(differences(&found()).is_empty());
        let mut other = found();
        let (columns, ttl) = other.tables.get_mut("u_charts").unwrap();
        columns.insert("value".into(), "float".into());
        columns.remove("lcl");
        columns.insert("more".into(), "text".into());
        *ttl = 5;
        assert_eq!(
            differences(&other),
            [
                "u_charts.lcl is missing, should be double",
                "u_charts.value is float, should be double",
                "u_charts: default_time_to_live is 5, should be 2592000",
            ]
        );
    }

    #[test]
    fn the_alarms_of_both_tables_have_the_same_columns() {
        let columns = |name: &str| {
            let table = TABLES.iter().find(|table| table.name == name).unwrap();
            expected(table).into_keys().filter(|name| name != "day").collect::<Vec<_>>()
        };
        assert_eq!(columns("alarms"), columns("alarms_by_day"));
    }

    #[test]
    fn a_replication_is_recognised_as_the_server_tells_it() {
        let told = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let network = "org.apache.cassandra.locator.NetworkTopologyStrategy";
        let three: Replication = "3".parse().unwrap();
        assert!(three.is(&told(&[("class", network), ("dc1", "3"), ("dc2", "3")])));
        assert!(!three.is(&told(&[("class", network), ("dc1", "3"), ("dc2", "2")])));
        let named: Replication = "dc1=3".parse().unwrap();
        assert!(named.is(&told(&[("class", network), ("dc1", "3")])));
        assert!(!named.is(&told(&[("class", network), ("dc1", "3"), ("dc2", "3")])));
        assert!("dc1=3,dc1=3".parse::<Replication>().is_err());
        assert!("dc'=3".parse::<Replication>().is_err());
    }
}
