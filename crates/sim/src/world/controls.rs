//! What is done to a world from outside: faults, commands, plans.

use super::*;

impl World {
    /// `kill -9`: what it has sent arrives, it sends and hears nothing more.
    pub fn kill(&mut self, process: ProcessId) {
        if !self.is_alive(process) {
            return;
        }
        self.note(|| format!("{process} is killed"));
        let runs: Vec<u32> = self.processes[process.index()].handler.runs.keys().copied().collect();
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
        let target = &mut self.processes[process.index()];
        target.stopped = true;
        target.disturb(Time::MAX);
    }

    /// The machine of a process is suspended: its clock stands still too, unless it is one that runs on.
    pub fn freeze(&mut self, process: ProcessId) {
        self.stop(process);
        self.processes[process.index()].frozen = Some(self.now);
    }

    /// SIGCONT: everything that arrived meanwhile is handled now, after the clock has jumped.
    pub fn resume(&mut self, process: ProcessId) {
        self.note(|| format!("{process} wakes"));
        let now = self.now;
        let target = &mut self.processes[process.index()];
        if !target.alive || !target.stopped {
            return;
        }
        target.wake_up(now);
        target.disturbed_until = now + RECOVERY_MARGIN;
        let mailbox = std::mem::take(&mut target.pending_events);
        for happening in mailbox {
            self.dispatch(happening);
        }
        self.deliver(process, Event::Tick);
    }

    /// Every machine that starts from now on has a clock of its own: hours off, and drifting.
    pub fn skew_clocks(&mut self, seed: u64) {
        self.clocks = Some(Rng::new(seed));
    }

    /// A process is killed after it has carried out so many more effects.
    pub fn kill_after_effects(&mut self, process: ProcessId, effects: u32) {
        self.processes[process.index()].kill_after_effects = Some(effects);
    }

    /// From now on answers may be lost, and writes may land late, in these ways.
    pub fn enable_request_faults(&mut self, seed: u64, kinds: &[RequestFault]) {
        self.fault_rng = Some(Rng::new(seed));
        self.request_faults = kinds.to_vec();
    }

    /// Nothing more is lost or late, every link works, the store answers, and messages behave.
    pub fn disable_faults(&mut self) {
        self.fault_rng = None;
        self.request_faults.clear();
        self.planned_kinds.clear();
        let now = self.now;
        self.store_down_until = self.store_down_until.min(now);
        self.store_late_until = self.store_late_until.min(now);
        for process in &mut self.processes {
            process.cut_in = process.cut_in.min(now);
            process.cut_out = process.cut_out.min(now);
            process.slowness = Duration::ZERO;
            process.watch_delay = Duration::ZERO;
            process.drops_heartbeats = false;
            process.drops_map = false;
            process.delayed_events.iter_mut().for_each(|(at, ..)| *at = now);
            process.kill_after_effects = None;
        }
        for process in self.living.clone() {
            self.deliver_delayed(process);
        }
    }

    /// Cuts a process off from the broker. What it asks stays unanswered; what it watches arrives afterwards.
    pub fn cut(&mut self, process: ProcessId, until: Time) {
        self.note(|| format!("{process} is cut off until {:.3}", until.since_origin().as_secs_f64()));
        let target = &mut self.processes[process.index()];
        target.cut_in = target.cut_in.max(until);
        target.cut_out = target.cut_out.max(until);
        target.disturb(until + RECOVERY_MARGIN);
    }

    /// Nothing that a process sends arrives; it hears everything.
    pub fn cut_out(&mut self, process: ProcessId, until: Time) {
        let target = &mut self.processes[process.index()];
        target.cut_out = target.cut_out.max(until);
        target.disturb(until + RECOVERY_MARGIN);
    }

    /// Nothing reaches a process; what it sends arrives.
    pub fn cut_in(&mut self, process: ProcessId, until: Time) {
        let target = &mut self.processes[process.index()];
        target.cut_in = target.cut_in.max(until);
        target.disturb(until + RECOVERY_MARGIN);
    }

    /// The broker is away for everybody.
    pub fn cut_all(&mut self, until: Time) {
        for process in self.living.clone() {
            self.cut(process, until);
        }
    }

    /// A process does not reach whoever grants leases; it reaches the broker.
    pub fn cut_from_grantor(&mut self, process: ProcessId, until: Time) {
        self.processes[process.index()].cut_from_agent = until;
    }

    /// Whoever grants leases is away for everybody, as while its replicas elect another leader of their own.
    pub fn agent_fails_over(&mut self, until: Time) {
        self.agent_down_until = until;
    }

    /// Answers to a process take this much longer; after two seconds nobody waits for them.
    pub fn slow_down(&mut self, process: ProcessId, by: Duration) {
        let now = self.now;
        let target = &mut self.processes[process.index()];
        target.slowness = by;
        target.disturb(now + RECOVERY_MARGIN);
    }

    /// The heartbeats of a process get lost, and nothing else does.
    pub fn lose_heartbeats(&mut self, process: ProcessId) {
        self.processes[process.index()].drops_heartbeats = true;
        self.processes[process.index()].disturb(Time::MAX);
    }

    /// Its heartbeats arrive again.
    pub fn carry_heartbeats(&mut self, process: ProcessId) {
        let now = self.now;
        self.processes[process.index()].drops_heartbeats = false;
        self.processes[process.index()].disturbed_until = now + RECOVERY_MARGIN;
    }

    /// A process is shown what it watches that much later; its requests are answered as ever.
    pub fn delay_watch(&mut self, process: ProcessId, by: Duration) {
        let now = self.now;
        self.processes[process.index()].watch_delay = by;
        self.processes[process.index()].disturb(if by.is_zero() { now + RECOVERY_MARGIN } else { Time::MAX });
    }

    /// The next change of the map is not shown to a process.
    pub fn drop_map_event(&mut self, process: ProcessId) {
        let until = self.now + RECOVERY_MARGIN;
        self.processes[process.index()].drops_map = true;
        self.processes[process.index()].disturb(until);
    }

    /// The watch of a process begins anew: it is shown every value again, as old ones.
    pub fn restart_watch(&mut self, process: ProcessId) {
        self.resync(process);
    }

    /// A process is expected to do well although something befell it: no pause and no time-out was among it.
    pub fn expect_healthy(&mut self, process: ProcessId) {
        self.processes[process.index()].disturbed_until = Time::ZERO;
        self.processes[process.index()].disturbed = false;
    }

    /// The next request of a process for this purpose reaches the broker a second time, so much later.
    pub fn repeat_request(&mut self, process: ProcessId, purpose: Purpose, after: Duration) {
        self.processes[process.index()].repeats = Some((purpose, after));
    }

    /// Gives a partition to a worker by a new version of the map, as a leader would.
    pub fn reassign(&mut self, partition: u32, id: u32) {
        let Some(map) = self.map() else { return };
        let mut next = AssignmentMap { version: map.version.next(), moved: 1, ..(**map).clone() };
        if let Some(assignment) = next.assignments.get_mut(&self.names[partition as usize]) {
            assignment.owner = WorkerId(id);
        }
        self.command(&Key::Map, Value::Map(Arc::new(next)));
    }

    /// A person's command, such as the fleet size.
    pub fn command(&mut self, key: &Key, value: Value) {
        let stored = self.broker.write(self.micros(), key, value, Condition::None);
        debug_assert!(stored.is_ok(), "a command without a condition");
        self.notify_watches(key);
    }

    /// A value is gone, as if it had expired or its bucket were lost.
    pub fn lose(&mut self, key: &Key) {
        if let Some(revision) = self.broker.get(key).map(|entry| entry.revision) {
            let deleted = self.broker.delete(self.micros(), key, revision);
            debug_assert!(deleted.is_ok(), "that revision was there");
            self.notify_watches(key);
        }
    }

    /// The bucket of the cursors is deleted and made anew.
    pub fn lose_cursors(&mut self) {
        self.broker.cursors().iter().for_each(|key| self.lose(key));
        self.oracle.cursors_lost();
        self.disturb_everybody();
    }

    /// The embedded folder is opened again: ids, heartbeats and the lease of earlier processes are discarded. A folder
    /// belongs to one process, so the workers that still use it are killed and their requests are lost.
    pub fn reopen_folder(&mut self) {
        self.note(|| "the folder is opened again".to_owned());
        for process in self.living.clone() {
            self.kill(process);
        }
        self.first_of_folder = self.processes.len() as u32;
        // A lease with a term is stored by the election agent, not in the folder.
        self.broker.discard_volatile(self.setup.config.lease_expiry == LeaseExpiry::OnSilence);
    }

    /// The log is deleted and made anew: everything in it is gone.
    pub fn recreate_log(&mut self) {
        let gone = self.log.recreate(LogId(self.micros()));
        self.oracle.log_lost(self.log.info().log_id, &gone);
        self.disturb_everybody();
    }

    /// The log loses its newest messages.
    pub fn lose_tail(&mut self, count: usize) {
        let gone = self.log.lose_tail(count);
        self.oracle.log_lost(self.log.info().log_id, &gone);
        self.disturb_everybody();
    }

    /// From now on the log keeps messages for this long.
    pub fn keep_messages_for(&mut self, retention: Duration) {
        self.log.retention = retention;
        self.expire();
    }

    pub(super) fn disturb_everybody(&mut self) {
        let until = self.now + RECOVERY_MARGIN;
        self.processes.iter_mut().for_each(|process| process.disturb(until));
    }

    /// The broker's clock jumps.
    pub fn step_broker_clock(&mut self, by_micros: i64) {
        self.broker_offset += by_micros;
    }

    /// The store does not answer until then.
    pub fn store_away(&mut self, until: Time) {
        self.store_down_until = self.store_down_until.max(until);
    }

    /// Until then what is written to the store lands so much later, and its writer waits in vain.
    pub fn store_late(&mut self, until: Time, by: Duration) {
        self.store_late_until = self.store_late_until.max(until);
        self.store_lag = by;
    }

    /// From now on messages are processed by another strategy.
    pub fn change_strategy(&mut self) {
        self.strategy += 1;
    }

    /// The next message of a partition will behave like this.
    pub fn plan_kind(&mut self, partition: u32, kind: MessageKind) {
        self.planned_kinds.insert(partition, kind);
    }

    /// Plans something for later.
    pub fn plan(&mut self, delay: Duration, planned: ScheduledAction) {
        self.later(delay, SimEvent::Planned(self.now, planned));
    }

    /// Planned starts make no more processes than this: whoever keeps replicas starts none beside those that live.
    pub fn limit_processes(&mut self, most: usize) {
        self.most_processes = most;
    }

    /// Kills whoever was started with a fleet size of its own.
    pub fn kill_mismatched(&mut self) {
        for odd in std::mem::take(&mut self.mismatched_sizes) {
            self.kill(odd);
        }
    }

    /// What was planned and has not happened will not happen.
    pub fn drop_scheduled(&mut self) {
        self.actions_dropped_until = self.now;
    }

    pub(super) fn carry_out_plan(&mut self, planned: ScheduledAction) {
        match planned {
            ScheduledAction::Start => {
                if self.living.len() < self.most_processes {
                    self.start();
                }
            }
            ScheduledAction::StartWithSize(fleet_size) => {
                let config = Config { fleet_size, ..self.setup.config.clone() };
                let odd = self.start_with(config);
                self.mismatched_sizes.push(odd);
            }
            ScheduledAction::Kill(process) => self.kill(process),
            ScheduledAction::Terminate(process) => self.terminate(process),
            ScheduledAction::Resume(process) => self.resume(process),
            ScheduledAction::Mend(process) => {
                self.slow_down(process, Duration::ZERO);
                self.carry_heartbeats(process);
                self.delay_watch(process, Duration::ZERO);
            }
            ScheduledAction::Retention(retention) => self.keep_messages_for(retention),
            ScheduledAction::FleetSize(Some(size)) => self.command(&Key::FleetSize, Value::FleetSize(size)),
            ScheduledAction::FleetSize(None) => self.lose(&Key::FleetSize),
            ScheduledAction::PublishAgain(partition, number) => self.publish_again(partition, number),
            ScheduledAction::Replay(partition, number) => self.replay(partition, number),
            ScheduledAction::KillLeader => self.leader().into_iter().for_each(|leader| self.kill(leader)),
            ScheduledAction::ReopenFolder => self.reopen_folder(),
            ScheduledAction::KillNewest => {
                self.living.last().copied().into_iter().for_each(|newest| self.kill(newest))
            }
        }
    }
}
