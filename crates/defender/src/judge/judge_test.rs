use phalanx_cluster::core::types::Sequence;
use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use phalanx_spc::chart::{Design, Kind, Monitor, Sample};
use phalanx_spc::equation::Reason;
use phalanx_spc::rules::Rule;
use proptest::prelude::*;

use super::rows::{Before, Entry};
use super::*;
use crate::record::{Mark, Results, Severity, StateRow};
use crate::strategy::Strategy as DefenseStrategy;

/// Every rule there is.
const ALL: &str = r#"[
  { rule = "limits", severity = "critical" }, { rule = "western-electric", severity = "info" },
  { rule = "nelson", severity = "warning" }, { rule = "ewma", severity = "warning" },
  { rule = "cusum", severity = "warning" }, { rule = "trend", points = 5, severity = "info" },
]"#;

fn chart(name: &str, limits: &str, rules: &str) -> String {
    format!(
        "[[group.chart]]\nname = \"{name}\"\nequation = \"mean(X)\"\nlimits = {limits}\nrules = {rules}\n"
    )
}

fn strategy(charts: &str) -> DefenseStrategy {
    DefenseStrategy::parse(&format!("[[group]]\ntools = [\"*\"]\n{charts}")).unwrap()
}

fn one(limits: &str, rules: &str) -> DefenseStrategy {
    strategy(&chart("a", limits, rules))
}

fn chamber() -> Chamber {
    Chamber::new("etch-01", "A").unwrap()
}

fn value(value: Option<f64>) -> Value {
    value.map_or(Value::NoValue(Reason::Undefined), Value::Value)
}

/// A chamber whose messages are judged one after the other, as the pipeline does it: every state through its bytes, every
/// history from rows.
struct World {
    rows: Vec<(UChart, Position, u64)>,
    state: Option<StateRow>,
    results: Vec<Results>,
    sequence: u64,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        Self { rows: Vec::new(), state: None, results: Vec::new(), sequence: 0, now }
    }

    fn entry(&mut self, context: &str, strategy: &Arc<str>) -> Entry {
        self.sequence += 1;
        self.now += SignedDuration::from_mins(10);
        let position = Position { generation: 1, sequence: Sequence(self.sequence) };
        let mark = Mark { position, take: 3 + self.sequence % 2, stamp: self.sequence };
        Entry {
            chamber: chamber(),
            mark,
            predecessor: self.state.as_ref().map(|row| row.mark.position),
            stream: 7,
            context: context.into(),
            timestamp: self.now,
            strategy: strategy.clone(),
        }
    }

    fn before(&self) -> Before {
        Before::decode(self.state.as_ref()).unwrap()
    }

    fn write(&mut self, results: Results) -> Results {
        let mark = results.mark;
        self.rows.extend(results.charts.iter().map(|row| (row.clone(), mark.position, mark.take)));
        // An attempt that never counted left a wild point beside it.
        self.rows.extend(
            results
                .charts
                .iter()
                .map(|row| (UChart { value: Some(1e6), ..row.clone() }, mark.position, mark.take + 100)),
        );
        self.state = Some(results.state.clone());
        self.results.push(results.clone());
        results
    }

    fn run(&mut self, strategy: &DefenseStrategy, context: &str, values: &[Option<f64>]) -> Results {
        let charts = strategy.charts_for(&chamber());
        let entry = self.entry(context, strategy.version());
        let before = self.before();
        let history = History::assemble(self.rows.clone(), &before.history);
        let values: Vec<Value> = values.iter().copied().map(value).collect();
        let run = Run {
            chamber: &entry.chamber,
            context: &entry.context,
            timestamp: entry.timestamp,
            position: entry.mark.position,
            strategy: &entry.strategy,
            values: &values,
        };
        let verdict = judge(run, &charts, &before.state, &history);
        assert_eq!(verdict, judge(run, &charts, &before.state, &history), "judged twice, the same twice");
        let results = entry.results(&before, verdict);
        self.write(results)
    }

    fn series(&mut self, strategy: &DefenseStrategy, values: &[f64]) -> Vec<Results> {
        values
            .iter()
            .map(|&value| {
                let context = format!("ctx_{}", self.sequence + 1);
                self.run(strategy, &context, &[Some(value)])
            })
            .collect()
    }

    fn command(&mut self, context: &str, charts: Option<&[&str]>) -> (Results, Vec<Remark>) {
        let entry = self.entry(context, &"v".into());
        let before = self.before();
        let command = Rebaseline {
            chamber: chamber(),
            context: entry.context.clone(),
            timestamp: entry.timestamp,
            charts: charts.map(|charts| charts.iter().map(|&name| name.into()).collect()),
        };
        let verdict = rebaseline(&command, entry.mark.position, &before.state);
        let remarks = verdict.remarks.clone();
        let results = entry.results(&before, verdict);
        (self.write(results), remarks)
    }
}

fn flags(results: &[Results]) -> Vec<u32> {
    results.iter().map(|results| results.charts[0].flags.0).collect()
}

/// Alarms that a message raised, and those it cleared, by rule.
fn news(results: &Results) -> (Vec<String>, Vec<String>) {
    let new = results.alarms.iter().filter(|one| alarm::is_news(one, &results.context.context));
    let (open, cleared): (Vec<&Alarm>, Vec<&Alarm>) = new.partition(|one| one.cleared.is_none());
    let names = |alarms: Vec<&Alarm>| alarms.iter().map(|one| (*one.rule).to_owned()).collect();
    (names(open), names(cleared))
}

/// Noise that no two neighbours share, the same in every run.
fn noise(i: u64) -> f64 {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
}

#[test]
fn limits_of_individuals_are_those_of_the_handbook() {
    // NIST/SEMATECH e-Handbook 6.3.2.2: flow rates of ten batches, limits 45.8159 and 55.8041 around 50.81.
    let baseline = [49.6, 47.6, 49.9, 51.3, 47.8, 51.2, 52.6, 52.4, 53.6, 52.1];
    let strategy = one("{ baseline = 10 }", "[{ rule = \"limits\", severity = \"critical\" }]");
    let mut world = World::new();
    let learning = world.series(&strategy, &baseline);
    let learning_flag = Flags::LEARNING.0;
    assert_eq!(flags(&learning)[0], Flags::BEGINS.with(Flags::LEARNING).0);
    assert!(flags(&learning)[1..].iter().all(|flags| *flags == learning_flag));
    assert_eq!(learning.iter().map(|one| one.charts[0].n).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    let judged = world.series(&strategy, &[55.7, 55.9]);
    let limits = judged[0].charts[0].limits.unwrap();
    // The handbook rounds d2 to 1.128 and the mean range to 1.8778.
    for (found, expected) in
        [(limits.center, 50.81), (limits.lcl.unwrap(), 45.8159), (limits.ucl.unwrap(), 55.8041)]
    {
        assert!((found - expected).abs() < 2e-3, "{found} {expected}");
    }
    assert_eq!((judged[0].charts[0].flags, judged[0].charts[0].n), (Flags::default(), 10));
    assert_eq!(judged[1].charts[0].flags, Flags::VIOLATION);
    let alarm = &judged[1].alarms[0];
    assert_eq!(
        alarm.message,
        "etch-01:A, chart a: 55.9 in run ctx_12 is above the upper limit 55.8024 (rule limits)."
    );
    assert_eq!((alarm.severity, alarm.value, alarm.limit), (Severity::Critical, Some(55.9), limits.ucl));
}

#[test]
fn limits_from_subgroups_come_from_the_spread_inside_them() {
    // Three subgroups of 2: standard deviations √2/2 · range; s̄ = (1 + 2 + 3)/√2/3; c4(2) = √(2/π).
    let strategy = one("{ baseline = 6, subgroup = 2 }", "[]");
    let mut world = World::new();
    world.series(&strategy, &[10.0, 11.0, 9.0, 11.0, 12.0, 9.0]);
    let limits = world.series(&strategy, &[10.0])[0].charts[0].limits.unwrap();
    let sigma = 2.0 / 2f64.sqrt() / (2.0 / std::f64::consts::PI).sqrt();
    assert!((limits.sigma.unwrap() - sigma).abs() < 1e-12);
    assert!((limits.center - 62.0 / 6.0).abs() < 1e-12);
    assert!((limits.ucl.unwrap() - (62.0 / 6.0 + 3.0 * sigma)).abs() < 1e-12);
}

#[test]
fn points_of_the_baseline_are_not_part_of_patterns() {
    let strategy = one("{ baseline = 10, center = 0 }", "[{ rule = \"nelson-2\", severity = \"info\" }]");
    let mut world = World::new();
    let baseline: Vec<f64> = (0..10).map(|i| 0.4 + noise(i).abs()).collect();
    world.series(&strategy, &baseline);
    let judged = world.series(&strategy, &[0.5; 9]);
    let violations: Vec<u32> = flags(&judged);
    assert_eq!(violations, [0, 0, 0, 0, 0, 0, 0, 0, Flags::VIOLATION.0]);
}

#[test]
fn a_learned_chart_says_what_the_statistics_crate_says() {
    let strategy = one(
        "{ baseline = 25, sigmas = 2.5 }",
        "[{ rule = \"limits\", severity = \"info\" }, { rule = \"nelson\", severity = \"info\" }]",
    );
    let mut rules = vec![Rule::Limits];
    rules.extend(Rule::NELSON);
    let design = Design { sigmas: 2.5, rules, ..Design::new(Kind::Imr) };
    let mut monitor = Monitor::learning(design, 25).unwrap();
    let values: Vec<f64> = (0..200).map(|i: u64| 5.0 + noise(i) + (i / 50) as f64 * 0.3).collect();
    let mut world = World::new();
    for (results, value) in world.series(&strategy, &values).iter().zip(&values) {
        let (next, judgement) = monitor.update(&Sample::Value(*value));
        monitor = next;
        let point = &results.charts[0];
        match judgement {
            phalanx_spc::chart::Judgement::Judged(judged) => {
                let expected: BTreeSet<&str> =
                    judged.signals.iter().map(|signal| signal.rule.name()).collect();
                let open = results.alarms.iter().filter(|alarm| alarm.cleared.is_none());
                assert_eq!(open.map(|alarm| &*alarm.rule).collect::<BTreeSet<_>>(), expected);
                let limits = point.limits.unwrap();
                assert_eq!((limits.lcl, limits.ucl), (judged.point.lcl, judged.point.ucl));
            }
            _ => assert!(point.flags.has(Flags::LEARNING)),
        }
    }
}

#[test]
fn a_baseline_without_spread_goes_on_learning_and_says_so() {
    let strategy = one("{ baseline = 5 }", "[{ rule = \"limits\", severity = \"info\" }]");
    let mut world = World::new();
    let results = world.series(&strategy, &[5.0; 8]);
    assert!(flags(&results).iter().all(|flags| Flags(*flags).has(Flags::LEARNING)));
    let results = world.series(&strategy, &[5.0, 6.0, 5.0]);
    assert_eq!(results[2].charts[0].n, 5, "the last five taught something");
}

#[test]
fn run_rules_ewma_and_cusum_say_what_the_statistics_crate_says() {
    let strategy = one("{ center = 10, sigma = 2 }", ALL);
    let values: Vec<f64> = (0..400)
        .map(|i: u64| {
            let shift = [0.0, 0.0, 1.5, -2.0, 0.0, 0.3][(i / 40 % 6) as usize];
            10.0 + 2.0 * (shift + 2.4 * noise(i))
        })
        .collect();
    let mut world = World::new();
    let results = world.series(&strategy, &values);
    let mut expected: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); values.len()];
    let designs = [
        (Kind::Imr, Rule::ALL.to_vec(), None),
        (Kind::Ewma { lambda: 0.2, asymptotic: false }, vec![Rule::Limits], Some("ewma")),
        (Kind::Cusum { k: 0.5, h: 5.0 }, vec![Rule::Limits], Some("cusum")),
    ];
    for (kind, rules, name) in designs {
        let design = Design { target: Some(10.0), sd: Some(2.0), rules, ..Design::new(kind) };
        let mut monitor = Monitor::fixed(design).unwrap();
        for (i, value) in values.iter().enumerate() {
            let (next, judgement) = monitor.update(&Sample::Value(*value));
            monitor = next;
            let phalanx_spc::chart::Judgement::Judged(judged) = judgement else { panic!() };
            expected[i].extend(judged.signals.iter().map(|signal| name.unwrap_or(signal.rule.name())));
        }
    }
    for (i, results) in results.iter().enumerate() {
        let open = results.alarms.iter().filter(|alarm| alarm.cleared.is_none() && *alarm.rule != *"trend");
        let found: BTreeSet<&str> = open.map(|alarm| &*alarm.rule).collect();
        assert_eq!(found, expected[i], "point {i}");
    }
}

/// Holds every message against a ledger of its own: raised once, rewritten while it holds, cleared once.
fn check_ledger(results: &[Results]) -> BTreeMap<String, (usize, usize)> {
    let mut active: BTreeMap<Arc<str>, Alarm> = BTreeMap::new();
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for results in results {
        let context = &results.context.context;
        let mut seen = BTreeSet::new();
        for alarm in &results.alarms {
            assert!(seen.insert(alarm.id.clone()), "an alarm stands once in a message");
            assert_eq!(*alarm.id, alarm::id(&alarm.chamber, &alarm.context, &alarm.indicator, &alarm.rule));
            let count = counts.entry((*alarm.rule).to_owned()).or_default();
            match (active.get(&alarm.id), &alarm.cleared) {
                (None, None) => {
                    assert_eq!((&alarm.context, alarm.state), (context, AlarmState::Open));
                    let twin = active
                        .values()
                        .find(|one| (&one.rule, &one.indicator) == (&alarm.rule, &alarm.indicator));
                    assert_eq!(twin, None, "raised while it was active");
                    count.0 += 1;
                    active.insert(alarm.id.clone(), alarm.clone());
                }
                (Some(before), None) => assert_eq!(before, alarm, "rewritten as it was"),
                (Some(before), Some((cleared, _))) => {
                    assert_eq!((cleared, alarm.state), (context, AlarmState::Cleared));
                    let as_before = Alarm { state: AlarmState::Open, cleared: None, ..alarm.clone() };
                    assert_eq!(*before, as_before);
                    count.1 += 1;
                    active.remove(&alarm.id);
                }
                (None, Some(_)) => panic!("cleared without being active: {alarm:?}"),
            }
        }
        assert!(active.keys().all(|id| seen.contains(id)), "every active alarm is rewritten");
    }
    counts
}

#[test]
fn every_rule_raises_once_and_clears_once() {
    let strategy = one("{ center = 0, sigma = 1 }", ALL);
    let mut values: Vec<f64> = Vec::new();
    let calm = || (0..20).map(|i: u64| 1.4 * if i % 4 < 2 { 1.0 } else { -1.0 } * (0.5 + noise(i).abs()));
    for pattern in [
        vec![3.5],
        vec![2.5, 2.5, 2.5],
        vec![1.5; 6],
        vec![0.5; 12],
        vec![-2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5],
        (0..16).map(|i| if i % 2 == 0 { 0.4 } else { -0.4 }).collect(),
        (0..17).map(|i| f64::from(i % 5) * 0.2 - 0.4).collect(),
        (0..9).map(|i| if i % 3 == 0 { 1.6 } else { -1.6 }).collect(),
        vec![2.9; 8],
    ] {
        values.extend(pattern);
        values.extend(calm());
        values.extend(std::iter::repeat_n(-0.05, 1));
        values.extend((0..60).map(|i: u64| 0.9 * noise(i * 7)));
    }
    let mut world = World::new();
    let results = world.series(&strategy, &values);
    let counts = check_ledger(&results);
    let rules: Vec<&str> =
        Rule::ALL.iter().map(|rule| rule.name()).chain(["ewma", "cusum", "trend"]).collect();
    for rule in rules {
        let (raised, cleared) = counts.get(rule).copied().unwrap_or_default();
        assert!(raised > 0 && cleared > 0, "{rule}: raised {raised}, cleared {cleared}");
    }
}

#[test]
fn a_point_without_a_value_changes_nothing_but_that_it_is_there() {
    let rules = "[{ rule = \"limits\", severity = \"info\" }, { rule = \"nelson-2\", severity = \"info\" }, { rule = \"ewma\", severity = \"info\" }]";
    let strategy = one("{ lcl = -3, ucl = 3 }", rules);
    let values: Vec<f64> = (0..30).map(|i: u64| if i < 12 { 0.4 } else { 6.0 * noise(i) }).collect();
    let (mut plain, mut holed) = (World::new(), World::new());
    let judged = plain.series(&strategy, &values);
    let mut kept = Vec::new();
    for (i, value) in values.iter().enumerate() {
        if i > 0 && i % 3 == 0 {
            let nothing = holed.run(&strategy, &format!("none_{i}"), &[[None, Some(2e100)][i % 2]]);
            assert_eq!(nothing.charts[0].flags, Flags::NO_VALUE);
            assert_eq!((nothing.charts[0].value, news(&nothing)), (None, (vec![], vec![])));
        }
        kept.push(holed.run(&strategy, &format!("ctx_{i}"), &[Some(*value)]));
    }
    assert!(flags(&judged).iter().any(|flags| Flags(*flags).has(Flags::VIOLATION)));
    assert_eq!(flags(&judged), flags(&kept));
    assert_eq!(judged.iter().map(news).collect::<Vec<_>>(), kept.iter().map(news).collect::<Vec<_>>());
}

#[test]
fn a_changed_equation_starts_its_chart_anew_and_a_changed_rule_does_not() {
    let rules = "[{ rule = \"limits\", severity = \"info\" }, { rule = \"ewma\", severity = \"info\" }]";
    let before = one("{ baseline = 5 }", rules);
    let mut world = World::new();
    world.series(&before, &[1.0, 2.0, 1.0, 2.0, 1.0]);
    let raised = world.series(&before, &[50.0]);
    assert_eq!(news(&raised[0]).0, ["limits", "ewma"]);
    let other_rule = one("{ baseline = 5 }", "[{ rule = \"limits\", severity = \"critical\" }]");
    let kept = world.series(&other_rule, &[60.0]);
    assert_eq!((kept[0].charts[0].n, news(&kept[0])), (5, (vec![], vec!["ewma".to_owned()])));
    assert!(!kept[0].charts[0].flags.has(Flags::BEGINS));
    let other_equation = strategy(&chart("a", "{ baseline = 5 }", rules).replace("mean(X)", "max(X)"));
    let anew = world.series(&other_equation, &[1.0]);
    assert_eq!(anew[0].charts[0].flags, Flags::BEGINS.with(Flags::LEARNING));
    assert_eq!((anew[0].charts[0].n, news(&anew[0])), (1, (vec![], vec!["limits".to_owned()])));
    check_ledger(&world.results);
}

#[test]
fn points_of_before_a_chart_began_anew_are_not_looked_back_upon() {
    let rules = "[{ rule = \"nelson-2\", severity = \"info\" }]";
    let strategy = one("{ center = 0, sigma = 1 }", rules);
    let mut world = World::new();
    world.series(&strategy, &[0.5; 8]);
    let (command, remarks) = world.command("cmd", Some(&["a", "nobody"]));
    assert_eq!((command.context.outcome, command.charts.len()), (Outcome::Command, 0));
    assert_eq!(remarks[0].indicator, "nobody".into());
    let results = world.series(&strategy, &[0.5; 9]);
    assert!(results[0].charts[0].flags.has(Flags::BEGINS));
    let violations: Vec<bool> =
        results.iter().map(|results| results.charts[0].flags.has(Flags::VIOLATION)).collect();
    assert_eq!(violations, [false, false, false, false, false, false, false, false, true]);
    let again = world.command("cmd", None).0;
    assert_eq!(again.context.outcome, Outcome::Duplicate);
    assert_eq!(again.alarms.len(), 1, "what is active is rewritten");
    let cleared = world.command("cmd2", None).0;
    assert_eq!(news(&cleared).1, ["nelson-2"]);
    check_ledger(&world.results);
}

#[test]
fn a_chart_that_is_no_more_is_forgotten_and_its_alarms_are_cleared() {
    let rules = "[{ rule = \"limits\", severity = \"info\" }]";
    let limits = "{ lcl = 0, ucl = 1 }";
    let two = strategy(&format!("{}{}", chart("a", limits, rules), chart("b", limits, rules)));
    let elsewhere =
        DefenseStrategy::parse(&format!("[[group]]\ntools = [\"cvd\"]\n{}", chart("a", limits, rules)))
            .unwrap();
    let mut world = World::new();
    world.run(&two, "1", &[Some(5.0), Some(5.0)]);
    let results = world.run(&one(limits, rules), "2", &[Some(5.0)]);
    assert_eq!(news(&results).1, ["limits"]);
    assert_eq!(results.alarms.len(), 2);
    let nothing = world.run(&elsewhere, "3", &[]);
    assert_eq!((nothing.context.outcome, nothing.charts.len()), (Outcome::NoCharts, 0));
    assert_eq!(nothing.state.history.len(), 2, "no points, no history");
    assert_eq!(world.before().state.indicators().count(), 0);
    check_ledger(&world.results);
}

#[test]
fn a_context_that_comes_again_changes_nothing() {
    let strategy = one("{ lcl = 0, ucl = 1 }", "[{ rule = \"limits\", severity = \"info\" }]");
    let mut world = World::new();
    let first = world.run(&strategy, "ctx", &[Some(5.0)]);
    let again = world.run(&strategy, "ctx", &[Some(0.5)]);
    assert_eq!(again.context.outcome, Outcome::Duplicate);
    assert_eq!((&again.state.state, &again.state.history), (&first.state.state, &first.state.history));
    assert_eq!((again.charts.len(), &again.alarms), (0, &first.alarms));
    for i in 0..RECENT {
        world.run(&strategy, &format!("other_{i}"), &[Some(0.5)]);
    }
    assert_eq!(world.before().state.remembered(), RECENT);
    assert_eq!(world.before().history.len(), crate::record::HISTORY);
    let much_later = world.run(&strategy, "ctx", &[Some(0.5)]);
    assert_eq!(much_later.context.outcome, Outcome::Processed);
    let bytes = world.state.as_ref().unwrap().state.len();
    assert!(bytes < 6 * RECENT, "{bytes} bytes for {RECENT} contexts");
}

#[test]
fn a_dead_letter_leaves_everything_as_it_was_and_can_be_sent_again() {
    let strategy = one("{ lcl = 0, ucl = 1 }", "[{ rule = \"limits\", severity = \"info\" }]");
    let mut world = World::new();
    let first = world.run(&strategy, "ctx", &[Some(5.0)]);
    let entry = world.entry("bad", strategy.version());
    let dead = entry.bury(&world.before());
    assert_eq!(dead.context.outcome, Outcome::Dead);
    assert_eq!((&dead.state.state, &dead.alarms), (&first.state.state, &first.alarms));
    assert_eq!((dead.state.mark, dead.state.predecessor), (entry.mark, Some(first.mark.position)));
    world.write(dead);
    assert_eq!(world.run(&strategy, "bad", &[Some(0.5)]).context.outcome, Outcome::Processed);
}

#[test]
fn points_older_than_29_days_do_not_count() {
    let strategy = one("{ center = 0, sigma = 1 }", "[{ rule = \"nelson-2\", severity = \"info\" }]");
    for (days, broken) in [(28, true), (29, false)] {
        let mut world = World::new();
        world.series(&strategy, &[0.5; 8]);
        world.now += SignedDuration::from_hours(24 * days);
        let results = world.series(&strategy, &[0.5]);
        assert_eq!(results[0].charts[0].flags.has(Flags::VIOLATION), broken, "{days} days later");
    }
}

#[test]
fn an_alarm_is_published_with_the_names_of_the_requirements() {
    let strategy = one("{ lcl = 0, ucl = 1 }", "[{ rule = \"limits\", severity = \"critical\" }]");
    let mut world = World::new();
    let raised = world.run(&strategy, "ctx_1", &[Some(5.0)]).alarms.remove(0);
    let cleared = world.run(&strategy, "ctx_2", &[Some(0.5)]).alarms.remove(0);
    assert_eq!(alarm::subject(&raised.chamber), "alarm.etch-01.A");
    assert_eq!(alarm::message_id(&raised), &*raised.id);
    assert_ne!(alarm::message_id(&cleared), alarm::message_id(&raised));
    let json = alarm::alarm_json(&cleared);
    assert_eq!(json["alarmId"], &*raised.id);
    assert_eq!((json["toolId"].as_str(), json["chamberId"].as_str()), (Some("etch-01"), Some("A")));
    assert_eq!(
        (json["contextId"].as_str(), json["clearedByContextId"].as_str()),
        (Some("ctx_1"), Some("ctx_2"))
    );
    assert_eq!((json["severity"].as_str(), json["state"].as_str()), (Some("critical"), Some("cleared")));
    assert_eq!((json["value"].as_f64(), json["limit"].as_f64()), (Some(5.0), Some(1.0)));
    assert_eq!(json["raisedAt"], "2026-01-01T00:10:00Z");
}

/// A state with something in each of its parts.
fn rich_state() -> ChartState {
    let limits = "{ baseline = 5 }";
    let strategy = strategy(&format!("{}{}", chart("a", limits, ALL), chart("b", limits, ALL)));
    let mut world = World::new();
    for i in 0..9u64 {
        let b = (i > 5).then(|| noise(i));
        world.run(
            &strategy,
            &format!("ctx_20260101_{i:06}"),
            &[Some(if i == 8 { 99.0 } else { noise(i) }), b],
        );
    }
    world.before().state
}

#[test]
fn another_format_is_refused_by_its_number() {
    let mut bytes = rich_state().encode();
    bytes[0] = 9;
    assert_eq!(ChartState::decode(&bytes), Err(StateError::Version { found: 9 }));
    assert!(matches!(ChartState::decode(b""), Err(StateError::Damaged(_))));
    let huge = [1, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert!(matches!(ChartState::decode(&huge), Err(StateError::Damaged(_))));
}

#[test]
fn a_state_of_format_1_is_still_read() {
    let bytes = include_bytes!("state-v1.bin");
    assert_eq!(ChartState::decode(bytes).unwrap(), rich_state());
    assert_eq!(rich_state().encode(), bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Straight through, with the state in memory and a history of rows that are all that counts; against the pipeline's
    /// way, in which `World` puts every state through its bytes and leaves other attempts' rows about.
    #[test]
    fn splitting_between_runs_changes_nothing(
        values in prop::collection::vec(prop::option::weighted(0.9, -5.0f64..5.0), 1..120),
        baseline in 5usize..12,
        move_every in 1usize..7,
    ) {
        let strategy = one(&format!("{{ baseline = {baseline} }}"), ALL);
        let charts = strategy.charts_for(&chamber());
        let mut world = World::new();
        let mut state = ChartState::default();
        let (mut rows, mut past) = (Vec::new(), Vec::new());
        for (i, one) in values.iter().enumerate() {
            let context: Arc<str> = format!("ctx_{i}").into();
            let split = world.run(&strategy, &context, &[*one]);
            let outcomes = [value(*one)];
            let run = Run {
                chamber: &chamber(),
                context: &context,
                timestamp: world.now,
                position: split.mark.position,
                strategy: strategy.version(),
                values: &outcomes,
            };
            let straight = judge(run, &charts, &state, &History::assemble(rows.clone(), &past));
            prop_assert_eq!(&straight.charts, &split.charts);
            prop_assert_eq!(&straight.alarms, &split.alarms);
            prop_assert_eq!(straight.state.encode(), split.state.state.clone());
            rows.extend(straight.charts.iter().map(|row| (row.clone(), split.mark.position, split.mark.take)));
            past = split.state.history.clone();
            state = straight.state;
            // The chamber moves: rows come back in another order, some of them twice.
            if i % move_every == 0 {
                rows.reverse();
                world.rows.rotate_left(i / 2);
                let again = world.rows[0].clone();
                world.rows.push(again);
            }
        }
        check_ledger(&world.results);
    }

    #[test]
    fn damaged_states_are_refused_or_read_but_never_panic(at in 0usize..4000, byte: u8, cut in 0usize..4000) {
        let bytes = rich_state().encode();
        prop_assert_eq!(ChartState::decode(&bytes), Ok(rich_state()));
        prop_assert!(ChartState::decode(&bytes[..cut % bytes.len()]).is_err());
        let mut bad = bytes.clone();
        let place = at % bad.len();
        bad[place] = byte;
        if let Ok(state) = ChartState::decode(&bad) {
            let _ = state.encode();
        }
    }
}
