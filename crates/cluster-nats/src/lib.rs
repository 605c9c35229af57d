#![doc = include_str!("../README.md")]

mod config;
mod connection;
mod kv;
mod log;
mod streams;
mod watch;

use std::sync::Arc;

use async_nats::jetstream::stream::Info;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use phalanx_cluster::backend::{
    Backend, BucketConfig, Error, Kv, Log, LogConfig, StoreConfig, StoreKind, validate,
};
use serde_json::Value;

pub use config::{Config, Tls};

use crate::connection::Connection;

/// NATS JetStream as a backend. Clones share one connection.
#[derive(Clone)]
pub struct Nats {
    connection: Connection,
    replicas: usize,
}

impl Nats {
    /// Connects, and refuses a server that is too old or has no JetStream. From then on a lost connection is made again
    /// for as long as it takes.
    pub fn connect(config: &Config) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let connection = Connection::open(config).await?;
            Ok(Self { connection, replicas: config.replicas })
        })
    }

    /// The version that the server says it has.
    pub fn server_version(&self) -> String {
        self.connection.client.server_info().version
    }

    /// Removes the buckets and logs of a group, and further logs. Those that do not exist are skipped.
    pub fn remove<'a>(
        &'a self,
        config: &'a StoreConfig,
        further: &'a [&'a LogConfig],
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let buckets = config.buckets().map(|bucket| streams::bucket_stream(&bucket.name));
            let logs = config.logs();
            let logs = logs.iter().chain(further).map(|log| log.name.clone());
            for stream in buckets.into_iter().chain(logs) {
                let removed: Result<Value, _> =
                    self.connection.api(&format!("STREAM.DELETE.{stream}"), &Value::Null).await;
                if let Err(trouble) = removed
                    && !trouble.is_missing()
                {
                    return Err(trouble.into_write_error(format!("removal of {stream}"), &stream));
                }
            }
            Ok(())
        })
    }

    /// The server that leads a log; none while there is none, or on a server that stands alone.
    pub async fn stream_leader(&self, log: &str) -> Result<Option<String>, Error> {
        let info: Result<Info, _> = self.connection.api(&format!("STREAM.INFO.{log}"), &Value::Null).await;
        match info {
            Ok(info) => Ok(info.cluster.and_then(|cluster| cluster.leader)),
            Err(trouble) => Err(trouble.into_read_error(format!("leader of {log}"), log)),
        }
    }
}

#[async_trait]
impl Backend for Nats {
    async fn bucket(&self, config: &BucketConfig) -> Result<Arc<dyn Kv>, Error> {
        validate::bucket(config)?;
        streams::ensure(&self.connection, &streams::bucket_config(config, self.replicas)).await?;
        Ok(Arc::new(kv::Bucket::new(self.connection.clone(), &config.name)))
    }

    async fn log(&self, config: &LogConfig) -> Result<Arc<dyn Log>, Error> {
        validate::log(config)?;
        streams::ensure(&self.connection, &streams::log_config(config, self.replicas)).await?;
        Ok(Arc::new(log::Stream::new(self.connection.clone(), config)))
    }

    async fn description(&self, kind: StoreKind, name: &str) -> Result<String, Error> {
        let config = streams::config(&self.connection, &streams::stream_of(kind, name)).await?;
        Ok(config["description"].as_str().unwrap_or_default().to_owned())
    }

    async fn describe(&self, kind: StoreKind, name: &str, description: &str) -> Result<(), Error> {
        streams::describe(&self.connection, &streams::stream_of(kind, name), description).await
    }
}
