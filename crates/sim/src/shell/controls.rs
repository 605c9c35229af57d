//! Faults and scheduled actions of the shell mode.

use std::time::Duration;

use phalanx_cluster::backend::WatchEvent;
use phalanx_cluster_core::types::{Key, Time, Value};
use phalanx_cluster_core::{Condition, Config};

use crate::backend::{Request, Response};
use crate::broker::MessageKind;
use crate::event::ScheduledAction;
use crate::faults::FaultTarget;
use crate::fleet::ProcessId;
use crate::shell::{ShellEvent, ShellWorld};

impl ShellWorld {
    /// Notes that a process has ended.
    pub(super) fn end(&mut self, process: ProcessId) {
        self.note(|| format!("{process} ends"));
        self.processes[process.index()].kill();
        self.running.retain(|&running| running != process);
        self.watches.retain(|watch| watch.process != process);
        self.subscriptions.retain(|subscription| subscription.process != process);
        self.oracle.processes.ended(process);
    }

    /// Continues a process after a stop.
    pub(super) fn resume(&mut self, process: ProcessId) {
        let now = self.now;
        let target = &mut self.processes[process.index()];
        if target.is_alive() && target.is_stopped {
            target.resume(now);
            self.oracle.processes.recover(process, self.now);
            self.note(|| format!("{process} resumes"));
        }
    }

    /// Starts a process with the configuration of the setup.
    pub(super) fn start_one(&mut self) -> ProcessId {
        self.start(self.setup.config.clone())
    }

    /// Deletes messages that are too old.
    pub(super) fn expire(&mut self) {
        let (now, name) = (self.now, self.stores.log.name.clone());
        let Ok(log) = self.server.log_mut(&name) else { return };
        let gone = log.log.expire(now);
        let gone = self.partitions_of(&gone);
        self.oracle.expired(&gone);
    }

    /// Returns sequences with their partitions instead of the numbers of their subjects.
    fn partitions_of<S: Copy>(&mut self, gone: &[(u32, S)]) -> Vec<(u32, S)> {
        let Ok(log) = self.server.log_mut(&self.stores.log.name) else { return Vec::new() };
        let (subjects, traffic) = (&self.stores.subjects, &self.traffic);
        let partition =
            |subject| subjects.partition(log.subject(subject)).and_then(|name| traffic.find(&name));
        gone.iter().filter_map(|(subject, sequence)| Some((partition(*subject)?, *sequence))).collect()
    }

    /// Notes that the log has lost messages.
    fn log_lost(&mut self, gone: &[(u32, phalanx_cluster_core::types::Sequence)]) {
        let gone = self.partitions_of(gone);
        let Ok(log) = self.server.log_mut(&self.stores.log.name) else { return };
        let log_id = log.log.info().log_id;
        self.oracle.log_lost(log_id, &gone);
        self.oracle.processes.disturb_all(self.now);
    }

    /// Deletes a stored value, as if it had expired or its bucket were lost.
    pub(super) fn lose(&mut self, bucket: &str, key: &str) {
        if let Some(entry) = self.server.get(bucket, key) {
            let request = Request::Delete(bucket.into(), key.to_owned(), entry.revision);
            let deleted = self.server.execute(self.now, request, u64::MAX);
            debug_assert!(deleted.is_ok(), "the revision matches");
            self.notify();
        }
    }

    /// Deletes the value of a key of the assignments.
    pub(super) fn lose_key(&mut self, key: &Key) {
        let (bucket, key) = (self.stores.assignments.name.clone(), self.stores.names.bucket_key(key).key);
        self.lose(&bucket, &key);
    }

    /// Stores a value of the assignments, as an operator does.
    fn command(&mut self, key: &Key, value: &Value) {
        let bytes = self.codec.encode(key, value, "");
        let (bucket, key) = (&self.stores.assignments.name, self.stores.names.bucket_key(key).key);
        let request = Request::Write(bucket.as_str().into(), key, bytes, Condition::None);
        // The bucket does not exist before the first worker.
        if self.server.execute(self.now, request, u64::MAX).is_ok() {
            self.notify();
        }
    }

    /// Opens the embedded folder again: ids, heartbeats and the lease of earlier processes are discarded. A folder belongs
    /// to one process, so the workers that still use it are killed and their requests are lost.
    fn reopen_folder(&mut self) {
        Self::note(self, || "the folder is opened again".to_owned());
        for process in self.running.clone() {
            self.kill(process);
        }
        self.network.reopen_folder();
        let stores = &self.stores;
        let buckets = [&stores.stable_ids, &stores.heartbeats, &stores.election].map(|one| one.name.clone());
        for bucket in buckets {
            let keys = self.server.execute(self.now, Request::Keys(bucket.as_str().into()), u64::MAX);
            let Ok(Response::Keys(keys)) = keys else { continue };
            for key in keys {
                self.lose(&bucket, &key);
            }
        }
    }

    pub(super) fn keep_messages_for(&mut self, retention: Duration) {
        if let Ok(log) = self.server.log_mut(&self.stores.log.name) {
            log.log.retention = retention;
        }
        self.expire();
    }

    pub(super) fn execute_action(&mut self, action: ScheduledAction) {
        match action {
            ScheduledAction::Start => {
                if self.running.len() < self.max_processes {
                    self.start_one();
                }
            }
            ScheduledAction::StartWithSize(fleet_size) => {
                let odd = self.start(Config { fleet_size, ..self.setup.config.clone() });
                self.mismatched.push(odd);
            }
            ScheduledAction::Kill(process) => self.kill(process),
            ScheduledAction::Terminate(process) => self.terminate(process),
            ScheduledAction::Resume(process) => self.resume(process),
            ScheduledAction::Mend(process) => {
                self.slow_down(process, Duration::ZERO);
                self.network.link_mut(process).drops_heartbeats = false;
                self.oracle.processes.recover(process, self.now);
                self.delay_watch(process, Duration::ZERO);
            }
            ScheduledAction::Retention(retention) => self.keep_messages_for(retention),
            ScheduledAction::PublishAgain(partition, number) => {
                self.append(partition, number, number, MessageKind::Good);
            }
            ScheduledAction::Replay(partition, number) => {
                let id = u64::MAX - self.now.since_origin().as_micros() as u64;
                self.append(partition, id, number, MessageKind::Good);
            }
            ScheduledAction::KillLeader => self.leader().into_iter().for_each(|leader| self.kill(leader)),
            ScheduledAction::KillNewest => {
                self.running.last().copied().into_iter().for_each(|newest| self.kill(newest));
            }
            ScheduledAction::FleetSize(Some(size)) => self.command(&Key::FleetSize, &Value::FleetSize(size)),
            ScheduledAction::FleetSize(None) => self.lose_key(&Key::FleetSize),
            ScheduledAction::ReopenFolder => self.reopen_folder(),
        }
    }
}

impl FaultTarget for ShellWorld {
    fn now(&self) -> Time {
        self.now
    }

    fn running(&self) -> Vec<ProcessId> {
        self.running.clone()
    }

    fn leader(&self) -> Option<ProcessId> {
        let leads = |process: &ProcessId| {
            let status = self.processes[process.index()].status();
            status.is_some_and(|status| status.role == phalanx_cluster::Role::Leader)
        };
        self.running.iter().copied().find(leads)
    }

    fn partitions(&self) -> u32 {
        self.traffic.partitions()
    }

    fn listed(&self) -> u32 {
        self.setup.partitions as u32
    }

    fn published_for(&self, partition: u32) -> u64 {
        self.traffic.published(partition)
    }

    fn retention(&self) -> Duration {
        self.setup.retention
    }

    fn note(&mut self, what: String) {
        Self::note(self, || what);
    }

    fn plan(&mut self, delay: Duration, action: ScheduledAction) {
        self.later(delay, ShellEvent::Scheduled(self.now, action));
    }

    fn kill(&mut self, process: ProcessId) {
        if !self.is_alive(process) {
            return;
        }
        Self::note(self, || format!("{process} is killed"));
        let of_process = (process, 0)..=(process, u32::MAX);
        let partitions: Vec<u32> = self.processing.range(of_process).map(|((_, found), _)| *found).collect();
        for partition in partitions {
            self.processing.remove(&(process, partition));
            self.oracle.on_worker_crash(process, partition);
        }
        self.end(process);
    }

    /// Kills a process after some of its next calls, which are the effects of its worker.
    fn kill_after_effects(&mut self, process: ProcessId, effects: u32) {
        self.processes[process.index()].kill_after_calls = Some(effects);
    }

    fn terminate(&mut self, process: ProcessId) {
        Self::note(self, || format!("{process} is told to leave"));
        self.processes[process.index()].terminate();
    }

    fn stop(&mut self, process: ProcessId) {
        Self::note(self, || format!("{process} is stopped"));
        self.processes[process.index()].is_stopped = true;
        self.oracle.processes.disturb(process, Time::MAX);
    }

    fn freeze(&mut self, process: ProcessId) {
        Self::note(self, || format!("the machine of {process} is suspended"));
        self.processes[process.index()].freeze(self.now);
        self.oracle.processes.disturb(process, Time::MAX);
    }

    fn plan_kind(&mut self, partition: u32, kind: MessageKind) {
        self.traffic.plan_kind(partition, kind);
    }

    fn cut(&mut self, process: ProcessId, until: Time) {
        self.cut_in(process, until);
        self.cut_out(process, until);
    }

    fn cut_in(&mut self, process: ProcessId, until: Time) {
        let link = self.network.link_mut(process);
        link.cut_in = link.cut_in.max(until);
        self.oracle.processes.disturb(process, until);
    }

    fn cut_out(&mut self, process: ProcessId, until: Time) {
        let link = self.network.link_mut(process);
        link.cut_out = link.cut_out.max(until);
        self.oracle.processes.disturb(process, until);
    }

    fn cut_all(&mut self, until: Time) {
        for process in self.running.clone() {
            self.cut(process, until);
        }
    }

    fn slow_down(&mut self, process: ProcessId, by: Duration) {
        self.network.link_mut(process).slowness = by;
        self.oracle.processes.disturb(process, self.now);
    }

    fn lose_heartbeats(&mut self, process: ProcessId) {
        self.network.link_mut(process).drops_heartbeats = true;
        self.oracle.processes.disturb(process, Time::MAX);
    }

    fn delay_watch(&mut self, process: ProcessId, by: Duration) {
        self.network.link_mut(process).watch_delay = by;
        self.oracle.processes.disturb(process, if by.is_zero() { self.now } else { Time::MAX });
    }

    fn drop_map_event(&mut self, process: ProcessId) {
        self.network.link_mut(process).drops_map = true;
        self.oracle.processes.disturb(process, self.now);
    }

    /// Reconnects the watches of a process: each resumes and shows all values again.
    fn restart_watch(&mut self, process: ProcessId) {
        for index in 0..self.watches.len() {
            if self.watches[index].process != process {
                continue;
            }
            let (bucket, events) = (self.watches[index].bucket.clone(), self.watches[index].events.clone());
            let first = self.server.watch_after(self.now, &bucket, phalanx_cluster_core::types::Revision(0));
            let resumed = [WatchEvent::Resumed { replaced: false }];
            for event in resumed.into_iter().chain(first.into_iter().flatten()) {
                let _ = events.send(event);
            }
        }
    }

    fn step_broker_clock(&mut self, by_micros: i64) {
        self.server.step_clock(by_micros);
    }

    fn lose_cursors(&mut self) {
        let bucket = self.stores.cursors.name.clone();
        let keys = (0..self.traffic.partitions()).map(|partition| {
            let key = Key::Cursor(self.traffic.name(partition).clone());
            self.stores.names.bucket_key(&key).key
        });
        for key in keys.collect::<Vec<_>>() {
            self.lose(&bucket, &key);
        }
        self.oracle.cursors_lost();
        self.oracle.processes.disturb_all(self.now);
    }

    fn lose_map(&mut self) {
        self.lose_key(&Key::Map);
    }

    fn recreate_log(&mut self) {
        let created = phalanx_cluster_core::types::LogId(self.server.micros(self.now));
        let Ok(log) = self.server.log_mut(&self.stores.log.name) else { return };
        let gone = log.log.recreate(created);
        self.log_lost(&gone);
    }

    fn lose_tail(&mut self, count: usize) {
        let Ok(log) = self.server.log_mut(&self.stores.log.name) else { return };
        let gone = log.log.lose_tail(count);
        self.log_lost(&gone);
    }

    fn store_away(&mut self, until: Time) {
        self.store.fail_until(until);
    }

    fn store_late(&mut self, until: Time, by: Duration) {
        self.store.delay_writes(until, by);
    }

    fn change_strategy(&mut self) {
        self.store.change_strategy();
    }

    fn add_unlisted_partition(&mut self) {
        let partition = self.traffic.add_unlisted();
        self.plan_traffic(partition);
    }

    fn unlist(&mut self, partition: u32) {
        self.traffic.unlist(partition);
        self.listed.set(self.traffic.listed().clone());
        for process in &self.running {
            self.processes[process.index()].refresh_partitions();
        }
    }
}
