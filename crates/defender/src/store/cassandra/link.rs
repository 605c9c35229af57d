//! The session, and the next one when it has lost its servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Config;
use super::fault::{fault, is_cut_off, session_fault};
use super::statements::Statements;
use crate::store::StoreError;

/// The driver itself would wait up to ten seconds to connect again; a new session finds a server that is back at once.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// A hung server is noticed only by asking.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// A session with its prepared statements.
pub(super) struct Live {
    pub(super) session: Session,
    pub(super) statements: Statements,
}

pub(super) struct Link {
    config: Config,
    state: Mutex<State>,
}

enum State {
    Live(Arc<Live>),
    Lost { last_try: Option<Instant>, reason: String },
}

impl Link {
    pub(super) fn new(config: Config, live: Live) -> Self {
        Self { config, state: Mutex::new(State::Live(Arc::new(live))) }
    }

    /// The session, a new one if the last has lost its servers.
    async fn live(&self) -> Result<Arc<Live>, StoreError> {
        let mut state = self.state.lock().await;
        let (last_try, reason) = match &*state {
            State::Live(live) => return Ok(live.clone()),
            State::Lost { last_try, reason } => (*last_try, reason),
        };
        if last_try.is_some_and(|at| at.elapsed() < TRY_EVERY) {
            return Err(StoreError::Unavailable(reason.clone()));
        }
        match open(&self.config).await {
            Ok(live) => {
                let live = Arc::new(live);
                *state = State::Live(live.clone());
                Ok(live)
            }
            Err(StoreError::Unavailable(reason) | StoreError::Refused(reason)) => {
                // Whatever it is, it is no fault of what was asked.
                *state = State::Lost { last_try: Some(Instant::now()), reason: reason.clone() };
                Err(StoreError::Unavailable(reason))
            }
        }
    }

    async fn lose(&self, lost: &Arc<Live>, error: &ExecutionError) {
        let mut state = self.state.lock().await;
        if matches!(&*state, State::Live(live) if Arc::ptr_eq(live, lost)) {
            *state = State::Lost { last_try: None, reason: error.to_string() };
        }
    }

    /// Runs one prepared statement.
    pub(super) async fn run<V: SerializeRow>(
        &self,
        statement: fn(&Statements) -> &PreparedStatement,
        values: V,
    ) -> Result<QueryResult, StoreError> {
        let live = self.live().await?;
        match live.session.execute_unpaged(statement(&live.statements), values).await {
            Ok(result) => Ok(result),
            Err(error) => Err(self.failed(&live, &error).await),
        }
    }

    /// Runs one statement for several rows of one partition, in one request.
    pub(super) async fn run_together<V: SerializeRow>(
        &self,
        statement: fn(&Statements) -> &PreparedStatement,
        rows: Vec<V>,
    ) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let live = self.live().await?;
        let mut batch = Batch::new(BatchType::Unlogged);
        rows.iter().for_each(|_| batch.append_statement(statement(&live.statements).clone()));
        batch.set_is_idempotent(true);
        match live.session.batch(&batch, rows).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failed(&live, &error).await),
        }
    }

    /// Runs a statement that may find very many rows, page by page.
    pub(super) async fn pages(
        &self,
        statement: fn(&Statements) -> &PreparedStatement,
    ) -> Result<Vec<QueryResult>, StoreError> {
        let live = self.live().await?;
        let (mut pages, mut state) = (Vec::new(), scylla::response::PagingState::start());
        loop {
            let page = live.session.execute_single_page(statement(&live.statements), (), state).await;
            let (result, next) = match page {
                Ok(page) => page,
                Err(error) => return Err(self.failed(&live, &error).await),
            };
            pages.push(result);
            match next.into_paging_control_flow() {
                std::ops::ControlFlow::Continue(more) => state = more,
                std::ops::ControlFlow::Break(()) => return Ok(pages),
            }
        }
    }

    async fn failed(&self, live: &Arc<Live>, error: &ExecutionError) -> StoreError {
        if is_cut_off(error) {
            self.lose(live, error).await;
        }
        fault(error)
    }
}

/// A session with its prepared statements.
pub(super) async fn open(config: &Config) -> Result<Live, StoreError> {
    let session = connect(config).await?;
    let prepare = Statements::prepare(&session, config.keyspace()?);
    let late = || StoreError::Unavailable("preparing statements took too long".to_owned());
    let statements = timeout(2 * config.request_timeout, prepare).await.map_err(|_| late())??;
    Ok(Live { session, statements })
}

/// A session alone.
pub(super) async fn connect(config: &Config) -> Result<Session, StoreError> {
    let profile = ExecutionProfile::builder()
        .consistency(config.consistency.0)
        .request_timeout(Some(config.request_timeout))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(config.nodes()?)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(config.connect_timeout)
        .hostname_resolution_timeout(Some(config.connect_timeout))
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .disallow_shard_aware_port(true)
        .fetch_schema_metadata(false);
    if let Some((user, password)) = &config.user {
        builder = builder.user(user, password);
    }
    if let Some(tls) = &config.tls {
        builder = builder.tls_context(Some(tls.load()?));
    }
    let patience = config.connect_timeout + config.request_timeout;
    match timeout(patience, builder.build()).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(session_fault(&error)),
        Err(_) => Err(StoreError::Unavailable(format!("no connection to {} in {patience:?}", config.hosts))),
    }
}
