//! Where the list of partitions comes from.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use super::hooks::HookError;
use crate::backend::Kv;
use crate::codec::check_partition;
use crate::core::types::{PartitionList, Weight};

/// A list of partitions that cannot be used.
#[derive(Debug, Error)]
pub enum PartitionListError {
    /// A name cannot be used.
    #[error("partition {name:?}: {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A line of a list is not `name` or `name,weight`.
    #[error("line {line}: {text:?} is not `name` or `name,weight` with a whole number")]
    Line {
        /// Which one, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// The source failed.
    #[error("{0}")]
    Source(HookError),
}

/// Says which partitions there are, and what each weighs. Asked at the start and at every
/// [`refresh_partitions`](super::WorkerHandle::refresh_partitions).
#[async_trait]
pub trait PartitionSource: Send + Sync + 'static {
    /// The partitions with their weights. A weight of 0 counts as 1.
    async fn partitions(&self) -> Result<Vec<(String, u64)>, HookError>;
}

/// A list that never changes.
#[async_trait]
impl PartitionSource for Vec<(String, u64)> {
    async fn partitions(&self) -> Result<Vec<(String, u64)>, HookError> {
        Ok(self.clone())
    }
}

/// A text file with a line `name` or `name,weight` for each partition; `#` begins a comment.
#[derive(Clone, Debug)]
pub struct FilePartitions(
    /// The file.
    pub PathBuf,
);

#[async_trait]
impl PartitionSource for FilePartitions {
    async fn partitions(&self) -> Result<Vec<(String, u64)>, HookError> {
        let path = self.0.clone();
        let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(&path)).await?;
        let text = text.map_err(|e| format!("reading {}: {e}", self.0.display()))?;
        Ok(lines(&text).map_err(|e| format!("{}, {e}", self.0.display()))?)
    }
}

/// A key of a bucket whose value is a list as in [`FilePartitions`]. An absent key is an empty list.
#[derive(Clone)]
pub struct KvPartitions {
    /// The bucket.
    pub bucket: Arc<dyn Kv>,
    /// The key.
    pub key: String,
}

#[async_trait]
impl PartitionSource for KvPartitions {
    async fn partitions(&self) -> Result<Vec<(String, u64)>, HookError> {
        let Some(entry) = self.bucket.get(&self.key).await? else { return Ok(Vec::new()) };
        let text = std::str::from_utf8(&entry.value).map_err(|e| format!("key {}: {e}", self.key))?;
        Ok(lines(text).map_err(|e| format!("key {}, {e}", self.key))?)
    }
}

fn lines(text: &str) -> Result<Vec<(String, u64)>, PartitionListError> {
    let content = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    let mut partitions = Vec::new();
    for (index, line) in text.lines().map(content).enumerate().filter(|(_, line)| !line.is_empty()) {
        let bad = || PartitionListError::Line { line: index + 1, text: line.clone() };
        let (name, weight) = line.split_once(',').unwrap_or((&line, "1"));
        partitions.push((name.trim().to_owned(), weight.trim().parse().map_err(|_| bad())?));
    }
    Ok(partitions)
}

/// Asks a source, and checks what it says.
pub(super) async fn load(source: &dyn PartitionSource) -> Result<Arc<PartitionList>, PartitionListError> {
    let mut partitions = source.partitions().await.map_err(PartitionListError::Source)?;
    for (name, _) in &partitions {
        check_partition(name)
            .map_err(|e| PartitionListError::Name { name: name.clone(), reason: e.to_string() })?;
    }
    partitions.sort();
    // One that stands twice has its heaviest weight.
    partitions.reverse();
    partitions.dedup_by(|a, b| a.0 == b.0);
    partitions.reverse();
    Ok(partitions.into_iter().map(|(name, weight)| (name.into(), Weight(weight.max(1)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_with_comments_and_weights() {
        let found = lines("# shops\nacme:A, 30\n\nacme:B # light\n").unwrap();
        assert_eq!(found, [("acme:A".to_owned(), 30), ("acme:B".to_owned(), 1)]);
        let error = lines("a\nb,heavy\n").unwrap_err().to_string();
        assert_eq!(error, "line 2: \"b,heavy\" is not `name` or `name,weight` with a whole number");
    }

    #[tokio::test]
    async fn a_bad_name_is_refused_and_a_double_one_counts_once() {
        let bad = vec![("a.b".to_owned(), 1)];
        assert!(load(&bad).await.unwrap_err().to_string().contains("a.b"));
        let double = vec![("a".to_owned(), 1), ("b".to_owned(), 0), ("a".to_owned(), 9)];
        assert_eq!(*load(&double).await.unwrap(), [("a".into(), Weight(9)), ("b".into(), Weight(1))]);
    }
}
