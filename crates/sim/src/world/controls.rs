//! Faults and commands from outside.

use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster_core::types::{AssignmentMap, Key, Time, Value, WorkerId};
use phalanx_cluster_core::{Condition, Event, LeaseExpiry, Purpose};

use crate::broker::MessageKind;
use crate::faults::RequestFault;
use crate::fleet::ProcessId;
use crate::world::World;

impl World {
    /// `kill -9`: what it has sent arrives, it sends and hears nothing more.
    pub fn kill(&mut self, process: ProcessId) {
        if !self.is_alive(process) {
            return;
        }
        self.note(|| format!("{process} is killed"));
        let runs: Vec<u32> = self.fleet.get(process).handler.runs.keys().copied().collect();
        for partition in runs {
            self.oracle.on_worker_crash(process, partition);
        }
        self.end(process);
    }

    /// SIGTERM: it leaves in its own order.
    pub fn terminate(&mut self, process: ProcessId) {
        self.note(|| format!("{process} is told to leave"));
        self.deliver(process, Event::Shutdown);
    }

    /// SIGSTOP.
    pub fn stop(&mut self, process: ProcessId) {
        self.note(|| format!("{process} stands still"));
        self.fleet.get_mut(process).is_stopped = true;
        self.oracle.processes.disturb(process, Time::MAX);
    }

    /// The machine of a process is suspended: its clock stands still too, unless it is one that runs on.
    pub fn freeze(&mut self, process: ProcessId) {
        self.stop(process);
        self.fleet.get_mut(process).frozen = Some(self.now);
    }

    /// SIGCONT: everything that arrived meanwhile is handled now, after the clock has jumped.
    pub fn resume(&mut self, process: ProcessId) {
        self.note(|| format!("{process} wakes"));
        let now = self.now;
        let target = self.fleet.get_mut(process);
        if !target.is_alive || !target.is_stopped {
            return;
        }
        target.resume(now);
        let pending = std::mem::take(&mut target.pending_events);
        self.oracle.processes.recover(process, now);
        for event in pending {
            self.dispatch(event);
        }
        self.deliver(process, Event::Tick);
    }

    /// Every machine that starts from now on has a clock of its own: hours off, and drifting.
    pub fn skew_clocks(&mut self, seed: u64) {
        self.fleet.skew_clocks(seed);
    }

    /// A process is killed after it has carried out so many more effects.
    pub fn kill_after_effects(&mut self, process: ProcessId, effects: u32) {
        self.fleet.get_mut(process).kill_after_effects = Some(effects);
    }

    /// From now on answers may be lost, and writes may land late, in these ways.
    pub fn enable_request_faults(&mut self, seed: u64, kinds: &[RequestFault]) {
        self.network.enable_request_faults(seed, kinds);
    }

    /// Nothing more is lost or late, every link works, the store answers, and messages behave.
    pub fn disable_faults(&mut self) {
        self.network.disable_faults(self.now);
        self.store.disable_faults(self.now);
        self.traffic.disable_faults();
        self.fleet.disable_faults();
        for process in self.fleet.running().to_vec() {
            self.deliver_delayed(process);
        }
    }

    /// Cuts a process off from the broker. What it asks stays unanswered; what it watches arrives afterwards.
    pub fn cut(&mut self, process: ProcessId, until: Time) {
        self.note(|| format!("{process} is cut off until {:.3}", until.since_origin().as_secs_f64()));
        let link = self.network.link_mut(process);
        link.cut_in = link.cut_in.max(until);
        link.cut_out = link.cut_out.max(until);
        self.oracle.processes.disturb(process, until);
    }

    /// Nothing that a process sends arrives; it hears everything.
    pub fn cut_out(&mut self, process: ProcessId, until: Time) {
        let link = self.network.link_mut(process);
        link.cut_out = link.cut_out.max(until);
        self.oracle.processes.disturb(process, until);
    }

    /// Nothing reaches a process; what it sends arrives.
    pub fn cut_in(&mut self, process: ProcessId, until: Time) {
        let link = self.network.link_mut(process);
        link.cut_in = link.cut_in.max(until);
        self.oracle.processes.disturb(process, until);
    }

    /// The broker is away for everybody.
    pub fn cut_all(&mut self, until: Time) {
        for process in self.fleet.running().to_vec() {
            self.cut(process, until);
        }
    }

    /// A process does not reach whoever grants leases; it reaches the broker.
    pub fn cut_from_grantor(&mut self, process: ProcessId, until: Time) {
        self.network.link_mut(process).cut_from_agent = until;
    }

    /// Whoever grants leases is away for everybody, as while its replicas elect another leader of their own.
    pub fn agent_fails_over(&mut self, until: Time) {
        self.network.agent_down_until = until;
    }

    /// Answers to a process take this much longer; after two seconds nobody waits for them.
    pub fn slow_down(&mut self, process: ProcessId, by: Duration) {
        self.network.link_mut(process).slowness = by;
        self.oracle.processes.disturb(process, self.now);
    }

    /// The heartbeats of a process get lost, and nothing else does.
    pub fn lose_heartbeats(&mut self, process: ProcessId) {
        self.network.link_mut(process).drops_heartbeats = true;
        self.oracle.processes.disturb(process, Time::MAX);
    }

    /// Its heartbeats arrive again.
    pub fn carry_heartbeats(&mut self, process: ProcessId) {
        self.network.link_mut(process).drops_heartbeats = false;
        self.oracle.processes.recover(process, self.now);
    }

    /// A process is shown what it watches that much later; its requests are answered as ever.
    pub fn delay_watch(&mut self, process: ProcessId, by: Duration) {
        self.network.link_mut(process).watch_delay = by;
        self.oracle.processes.disturb(process, if by.is_zero() { self.now } else { Time::MAX });
    }

    /// The next change of the map is not shown to a process.
    pub fn drop_map_event(&mut self, process: ProcessId) {
        self.network.link_mut(process).drops_map = true;
        self.oracle.processes.disturb(process, self.now);
    }

    /// The watch of a process begins anew: it is shown every value again, as old ones.
    pub fn restart_watch(&mut self, process: ProcessId) {
        self.resync(process);
    }

    /// A process is expected to do well although something befell it: no pause and no time-out was among it.
    pub fn expect_healthy(&mut self, process: ProcessId) {
        self.oracle.processes.expect_healthy(process);
    }

    /// The next request of a process for this purpose reaches the broker a second time, so much later.
    pub fn repeat_request(&mut self, process: ProcessId, purpose: Purpose, after: Duration) {
        self.network.link_mut(process).repeats = Some((purpose, after));
    }

    /// Gives a partition to a worker by a new version of the map, as a leader would.
    pub fn reassign(&mut self, partition: u32, id: u32) {
        let Some(map) = self.map() else { return };
        let mut next = AssignmentMap { version: map.version.next(), moved: 1, ..(**map).clone() };
        if let Some(assignment) = next.assignments.get_mut(self.traffic.name(partition)) {
            assignment.owner = WorkerId(id);
        }
        self.command(&Key::Map, Value::Map(Arc::new(next)));
    }

    /// A person's command, such as the fleet size.
    pub fn command(&mut self, key: &Key, value: Value) {
        let stored = self.broker.write(self.now, key, value, Condition::None);
        debug_assert!(stored.is_ok(), "a command without a condition");
        self.notify_watches(key);
    }

    /// A value is gone, as if it had expired or its bucket were lost.
    pub fn lose(&mut self, key: &Key) {
        if let Some(revision) = self.broker.revision(key) {
            let deleted = self.broker.delete(self.now, key, revision);
            debug_assert!(deleted.is_ok(), "that revision was there");
            self.notify_watches(key);
        }
    }

    /// The bucket of the cursors is deleted and made anew.
    pub fn lose_cursors(&mut self) {
        self.broker.cursors().iter().for_each(|key| self.lose(key));
        self.oracle.cursors_lost();
        self.oracle.processes.disturb_all(self.now);
    }

    /// The embedded folder is opened again: ids, heartbeats and the lease of earlier processes are discarded. A folder
    /// belongs to one process, so the workers that still use it are killed and their requests are lost.
    pub fn reopen_folder(&mut self) {
        self.note(|| "the folder is opened again".to_owned());
        for process in self.fleet.running().to_vec() {
            self.kill(process);
        }
        self.network.reopen_folder();
        // A lease with a term is stored by the election agent, not in the folder.
        self.broker.discard_volatile(self.setup.config.lease_expiry == LeaseExpiry::OnSilence);
    }

    /// The log is deleted and made anew: everything in it is gone.
    pub fn recreate_log(&mut self) {
        let gone = self.broker.recreate_log(self.now);
        self.oracle.log_lost(self.broker.log.info().log_id, &gone);
        self.oracle.processes.disturb_all(self.now);
    }

    /// The log loses its newest messages.
    pub fn lose_tail(&mut self, count: usize) {
        let gone = self.broker.log.lose_tail(count);
        self.oracle.log_lost(self.broker.log.info().log_id, &gone);
        self.oracle.processes.disturb_all(self.now);
    }

    /// From now on the log keeps messages for this long.
    pub fn keep_messages_for(&mut self, retention: Duration) {
        self.broker.log.retention = retention;
        self.expire();
    }

    /// The broker's clock jumps.
    pub fn step_broker_clock(&mut self, by_micros: i64) {
        self.broker.step_clock(by_micros);
    }

    /// The store does not answer until then.
    pub fn store_away(&mut self, until: Time) {
        self.store.fail_until(until);
    }

    /// Until then what is written to the store lands so much later, and its writer waits in vain.
    pub fn store_late(&mut self, until: Time, by: Duration) {
        self.store.delay_writes(until, by);
    }

    /// From now on messages are processed by another strategy.
    pub fn change_strategy(&mut self) {
        self.store.change_strategy();
    }

    /// The next message of a partition will behave like this.
    pub fn plan_kind(&mut self, partition: u32, kind: MessageKind) {
        self.traffic.plan_kind(partition, kind);
    }
}
