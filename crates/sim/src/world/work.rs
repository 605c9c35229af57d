//! Messages that are being processed, and the store they are written to.

use super::*;

impl World {
    pub(super) fn drop_runs(&mut self, process: ProcessId) {
        let chambers: Vec<u32> = self.processes[process.index()].handler.runs.keys().copied().collect();
        for chamber in chambers {
            self.ledger.ends(process, chamber);
        }
        self.processes[process.index()].handler.drop_all();
    }

    pub(super) fn notice(&mut self, process: ProcessId, notice: &Notice) {
        let kind = match notice {
            Notice::Committed { partition, .. } => {
                let chamber = self.numbers[partition];
                self.processes[process.index()].handler.committed(chamber);
                return;
            }
            Notice::Expired { partition, after, before } => {
                self.ledger.reported_expired(self.numbers[partition], *after, *before);
                "expired"
            }
            Notice::LogReplaced { .. } => "logReplaced",
            Notice::Adopted { .. } => "adopted",
            Notice::RestartDetected => "restartDetected",
            Notice::Planned(_) => "planned",
        };
        *self.notices.entry(kind).or_default() += 1;
    }

    pub(super) fn begin_run(&mut self, process: ProcessId, chamber: u32, mut run: Run) {
        let now = self.now;
        let processes = &self.processes;
        self.ledger.begins(now, process, chamber, &run.work, |other| {
            let other = &processes[other.index()];
            other.alive && other.disturbed_until <= now
        });
        let (_, kind) = decode(&run.work.message.payload);
        let ticket = run.ticket;
        let milliseconds = |ms: u64| Duration::from_millis(ms);
        let (wait, step) = match kind {
            Kind::Killer => (milliseconds(100), Step::Die),
            Kind::Broken => (milliseconds(10), Step::Broken),
            Kind::Flaky(times) if run.work.attempt <= u32::from(times) => (milliseconds(50), Step::Fail),
            Kind::Endless => (self.setup.config.process_timeout, Step::TimeOut),
            Kind::Good | Kind::Flaky(_) => (milliseconds(self.traffic.between(2, 200)), Step::Store),
        };
        if self.store_away_until > now {
            self.ledger.ends(process, chamber);
            let event = Event::Processed { ticket, outcome: Outcome::Unavailable };
            self.later(STORE_TIMEOUT, Happening::Arrival(process, event));
            return;
        }
        if run.work.fresh {
            self.processes[process.index()].handler.forget(chamber);
        }
        // The chart state is read at the beginning; the results of it are written at the end.
        if matches!(step, Step::Store) {
            let exact = self.setup.config.keeps(Guard::StateAtCommitted);
            let lookup = if exact { Lookup::Exact } else { Lookup::Newest };
            let handler = &mut self.processes[process.index()].handler;
            run.results = handler.compute(chamber, &run.work, self.strategy, lookup, &self.store);
            if run.results.is_none() {
                let at = run.work.committed;
                let what = format!("{process} finds no chart state of chamber {chamber} at {at:?}");
                self.ledger.violate(5, now, what);
            }
        }
        self.processes[process.index()].handler.runs.insert(chamber, run);
        self.later(wait, Happening::Step(process, chamber, ticket, step));
    }

    pub(super) fn step(&mut self, process: ProcessId, chamber: u32, ticket: Ticket, step: Step) {
        let now = self.now;
        let target = &mut self.processes[process.index()];
        if !target.alive {
            return;
        }
        if target.stopped {
            target.mailbox.push(Happening::Step(process, chamber, ticket, step));
            return;
        }
        if target.handler.runs.get(&chamber).is_none_or(|run| run.ticket != ticket) {
            return;
        }
        // A handler is polled only while its worker is unfenced.
        if target.worker.is_fenced(target.clock(now)) {
            target.handler.runs.remove(&chamber);
            self.ledger.ends(process, chamber);
            return;
        }
        let outcome = match step {
            Step::Die => {
                self.kill(process);
                self.plan(Duration::from_secs(3), Planned::Start);
                return;
            }
            Step::Store => {
                self.send_rows(process, chamber);
                return;
            }
            Step::Fail => Outcome::Failed("it fails".into()),
            Step::Broken => Outcome::Poison("it is broken".into()),
            Step::TimeOut => Outcome::Failed("it took too long".into()),
        };
        target.handler.runs.remove(&chamber);
        self.ledger.ends(process, chamber);
        self.later(Duration::ZERO, Happening::Arrival(process, Event::Processed { ticket, outcome }));
    }

    pub(super) fn send_rows(&mut self, process: ProcessId, chamber: u32) {
        let now = self.now;
        if !self.processes[process.index()].lost_time {
            self.ledger.check_fence(now, process, "writes rows");
        }
        let Some(run) = self.processes[process.index()].handler.runs.remove(&chamber) else { return };
        self.ledger.ends(process, chamber);
        let ticket = run.ticket;
        let away = self.store_away_until > now;
        let outcome = match run.results {
            Some(results) if self.store_late_until > now => {
                // Its writer has given up when it lands.
                self.later(self.store_lag, Happening::Rows(Box::new(results)));
                Outcome::Unavailable
            }
            Some(results) if !away => {
                self.later(LATENCY, Happening::Rows(Box::new(results)));
                let event = Event::Processed { ticket, outcome: Outcome::Done };
                self.later(LATENCY * 2, Happening::Arrival(process, event));
                return;
            }
            Some(_) => Outcome::Unavailable,
            None => Outcome::Failed("no chart state".into()),
        };
        self.later(STORE_TIMEOUT, Happening::Arrival(process, Event::Processed { ticket, outcome }));
    }

    pub(super) fn store_rows(&mut self, results: &Results) {
        self.store.write(results);
        let sum = results
            .rows
            .iter()
            .fold(0, |sum, (indicator, content)| mix(sum, content ^ u64::from(*indicator)));
        self.ledger.rows(self.now, results, &self.store, sum);
    }

    pub(super) fn ask_store(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let away = self.store_away_until > now;
        let (wait, event) = match effect {
            Effect::ReadOrigin { ticket, .. } if away => {
                (STORE_TIMEOUT, Event::Traced { ticket, result: Err(ReadError) })
            }
            Effect::ReadOrigin { ticket, partition } => {
                let origin = self.store.origin(self.numbers[&partition]);
                (LATENCY * 2, Event::Traced { ticket, result: Ok(origin) })
            }
            Effect::Bury { ticket, partition, work, .. } => {
                let chamber = self.numbers[&partition];
                let results = Handler::bury(chamber, &work, &self.store);
                match results {
                    Some(results) if !away => {
                        self.later(LATENCY, Happening::Rows(Box::new(results)));
                        (LATENCY * 2, Event::Done { ticket, happened: true })
                    }
                    Some(_) => (STORE_TIMEOUT, Event::Done { ticket, happened: false }),
                    None => {
                        let at = work.committed;
                        self.ledger.violate(
                            5,
                            now,
                            format!("{process} finds no chart state of {partition} at {at:?}"),
                        );
                        (STORE_TIMEOUT, Event::Done { ticket, happened: false })
                    }
                }
            }
            other => unreachable!("{other:?} is not for the store"),
        };
        self.later(wait, Happening::Arrival(process, event));
    }
}
