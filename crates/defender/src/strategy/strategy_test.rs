use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::Strategy;
use super::*;
use crate::record::Limits;

const SMALL: &str = r#"
[[group]]
tools = ["etch-*"]
chambers = ["A", "B"]

[[group.chart]]
name = "rf-power"
equation = "mean(RF_POWER[10s..50s])"
limits = { lcl = 480, ucl = 520 }
rules = [
  { rule = "limits", severity = "critical" },
  { rule = "nelson-2", severity = "warning" },
]

[[group.chart]]
name = "temp"
equation = "max(TEMP) - min(TEMP)"
sides = "upper"
limits = { baseline = 30, sigmas = 3.5 }
rules = [{ rule = "ewma", lambda = 0.1, severity = "info" }]
"#;

fn chamber(tool: &str, chamber: &str) -> Chamber {
    Chamber::new(tool, chamber).unwrap()
}

fn with_limits(limits: &str) -> String {
    format!(
        "[[group]]\ntools = [\"*\"]\n[[group.chart]]\nname = \"a\"\nequation = \"mean(X)\"\nlimits = {limits}\nrules = []\n"
    )
}

fn with_rules(rules: &str) -> String {
    with_limits("{ lcl = 0, ucl = 1 }").replace("rules = []", &format!("rules = {rules}"))
}

fn only(strategy: &Strategy) -> Arc<Chart> {
    strategy.groups().next().unwrap().2[0].clone()
}

#[track_caller]
fn refused(text: &str, line: usize, column: usize, words: &[&str]) {
    let error = Strategy::parse(text).expect_err(text);
    let shown = error.to_string();
    assert_eq!((error.line, error.column), (line, column), "{shown}");
    for word in words {
        assert!(shown.contains(word), "no {word:?} in: {shown}");
    }
}

#[test]
fn a_chamber_gets_the_charts_of_the_groups_it_matches() {
    let strategy = Strategy::parse(SMALL).unwrap();
    let charts = strategy.charts_for(&chamber("etch-01", "A"));
    let names: Vec<&str> = charts.iter().map(|chart| &*chart.name).collect();
    assert_eq!(names, ["rf-power", "temp"]);
    assert_eq!(charts.svids(), ["RF_POWER", "TEMP"]);
    assert!(strategy.charts_for(&chamber("etch-01", "C")).is_empty());
    assert!(strategy.charts_for(&chamber("cvd-01", "A")).is_empty());
}

#[test]
fn the_chart_that_stands_last_counts() {
    let exception = SMALL
        .replace("etch-*", "etch-07")
        .replace("[\"A\", \"B\"]", "[\"*\"]")
        .replace("lcl = 480", "lcl = 450")
        .split("[[group.chart]]\nname = \"temp\"")
        .next()
        .unwrap()
        .to_owned();
    let strategy = Strategy::parse(&format!("{SMALL}{exception}")).unwrap();
    let lcl = |tool: &str| {
        let charts = strategy.charts_for(&chamber(tool, "A"));
        assert_eq!(charts.len(), 2);
        let limits = charts.iter().next().unwrap().limits.clone();
        let LimitSource::Fixed(Limits { lcl, .. }) = limits else { panic!("{limits:?}") };
        lcl
    };
    assert_eq!((lcl("etch-01"), lcl("etch-07")), (Some(480.0), Some(450.0)));
}

#[test]
fn the_version_follows_the_meaning_and_nothing_else() {
    let version = |text: &str| Strategy::parse(text).unwrap().version().clone();
    let same = SMALL
        .replace("mean(RF_POWER[10s..50s])", "mean( RF_POWER [10s .. 50s] )")
        .replace("{ lcl = 480, ucl = 520 }", "{ ucl = 520.0, lcl = 480.0 } # a comment")
        .replace("sides = \"upper\"\n", "")
        .replace("name = \"temp\"", "sides = \"upper\"\nname = \"temp\"");
    assert_ne!(same, SMALL);
    assert_eq!(version(&same), version(SMALL));
    for (old, new) in [
        ("etch-*", "etch-0*"),
        ("\"B\"", "\"C\""),
        ("rf-power", "rf-power2"),
        ("10s", "11s"),
        ("480", "481"),
        ("critical", "warning"),
        ("nelson-2", "nelson-3"),
        ("upper", "lower"),
        ("baseline = 30", "baseline = 31"),
        ("3.5", "3.25"),
        ("lambda = 0.1", "lambda = 0.2"),
    ] {
        assert_ne!(version(&SMALL.replace(old, new)), version(SMALL), "{old} -> {new}");
    }
}

#[test]
fn a_definition_is_equation_sides_and_limits() {
    let definition = |text: &str| only(&Strategy::parse(text).unwrap()).definition;
    let before = definition(SMALL);
    for (old, new, differs) in [
        ("50s", "60s", true),
        ("ucl = 520", "ucl = 530", true),
        ("nelson-2", "nelson-3", false),
        ("critical", "info", false),
        ("rf-power", "other", false),
    ] {
        assert_eq!(definition(&SMALL.replace(old, new)) != before, differs, "{old} -> {new}");
    }
}

#[test]
fn this_definition_never_changes() {
    // Were it to, every chart in the field would begin anew with the next release.
    let strategy = Strategy::parse(SMALL).unwrap();
    assert_eq!(
        (only(&strategy).definition, &**strategy.version()),
        (6_991_909_173_015_690_414, "093692bb5e214631")
    );
}

#[test]
fn limits_are_set_around_or_learned() {
    let source = |limits: &str| only(&Strategy::parse(&with_limits(limits)).unwrap()).limits.clone();
    let fixed = |limits: &str| match source(limits) {
        LimitSource::Fixed(Limits { center, lcl, ucl, sigma }) => (center, lcl, ucl, sigma),
        other => panic!("{other:?}"),
    };
    assert_eq!(fixed("{ lcl = 1, ucl = 7 }"), (4.0, Some(1.0), Some(7.0), Some(1.0)));
    assert_eq!(fixed("{ ucl = 7, center = 1, sigmas = 2 }"), (1.0, None, Some(7.0), Some(3.0)));
    assert_eq!(fixed("{ center = 10, sigma = 2 }"), (10.0, Some(4.0), Some(16.0), Some(2.0)));
    let LimitSource::Learned(baseline) = source("{ baseline = 30, subgroup = 5, robust = true }") else {
        panic!()
    };
    assert_eq!((baseline.runs, baseline.subgroup, baseline.design.robust), (30, Some(5), true));
}

#[test]
fn what_is_wrong_is_told_with_line_column_and_hint() {
    refused("[[group]\n", 1, 9, &[]);
    refused("", 1, 1, &["no group", "[[group]]"]);
    refused("[[group]]\ntools = [\"*\"]\ncolour = 3\n", 3, 1, &["colour", "tools"]);
    refused("[[group]]\ntools = []\n", 2, 9, &["matches nothing"]);
    refused("[[group]]\ntools = [\"*\"]\n", 1, 1, &["no chart", "[[group.chart]]"]);
    refused("[[group]]\n", 1, 1, &["tools"]);
    refused(&SMALL.replace("rf-power", "rf.power"), 7, 8, &["'.'", "position 3"]);
    refused(&SMALL.replace("\"temp\"", "\"rf-power\""), 16, 8, &["two charts"]);
    refused(&with_limits("{}"), 6, 10, &["where the limits are", "baseline = 30"]);
    refused(&with_limits("{ lcl = 3, ucl = 1 }"), 6, 10, &["3", "1"]);
    refused(&with_limits("{ lcl = 3 }"), 6, 10, &["center"]);
    refused(&with_limits("{ lcl = 3, ucl = 9, center = 3 }"), 6, 10, &["between"]);
    refused(&with_limits("{ lcl = 3, baseline = 30 }"), 6, 18, &["either"]);
    refused(&with_limits("{ lcl = nan, ucl = 1 }"), 6, 18, &["NaN"]);
    refused(&with_limits("{ lcl = 1e200, ucl = inf }"), 6, 18, &["1e100"]);
    refused(&with_limits("{ baseline = 4 }"), 6, 23, &["5 to 1000", "not 4"]);
    refused(&with_limits("{ baseline = -4 }"), 6, 23, &["not -4"]);
    refused(&with_limits("{ baseline = 31, subgroup = 5 }"), 6, 38, &["baseline = 35"]);
    refused(&with_limits("{ center = 1, sigma = 0 }"), 6, 10, &["above 0"]);
    refused(&with_limits("{ center = 1, sigma = 1, baseline = 9 }"), 6, 32, &["nothing to learn"]);
    refused(&with_limits("{ lcl = 1, ucl = 2, robust = true }"), 6, 39, &["learned"]);
    refused(&with_rules("[{ rule = \"nelson-9\", severity = \"info\" }]"), 7, 19, &["nelson-1 to nelson-8"]);
    refused(&with_rules("[{ rule = \"limits\" }]"), 7, 10, &["severity"]);
    refused(&with_rules("[{ rule = \"limits\", severity = \"bad\" }]"), 7, 40, &["critical"]);
    refused(&with_rules("[{ rule = \"limits\", k = 1, severity = \"info\" }]"), 7, 33, &["no parameters"]);
    refused(&with_rules("[{ rule = \"ewma\", lambda = 2, severity = \"info\" }]"), 7, 10, &["lambda"]);
    refused(&with_rules("[{ rule = \"trend\", points = 2, severity = \"info\" }]"), 7, 37, &["3 to 50"]);
    let twice = "[{ rule = \"nelson\", severity = \"info\" }, { rule = \"nelson-1\", severity = \"info\" }]";
    refused(&with_rules(twice), 7, 59, &["twice"]);
}

#[test]
fn an_error_in_an_equation_is_told_by_its_place_in_the_file() {
    let equation = |literal: &str| SMALL.replace("\"mean(RF_POWER[10s..50s])\"", literal);
    refused(&equation("\"men(RF)\""), 8, 13, &["did you mean `mean`"]);
    refused(&equation("\"mean(RF) + men(RF)\""), 8, 24, &["did you mean"]);
    refused(&equation("'mean(\"Gas 1\") + men(RF)'"), 8, 29, &["did you mean"]);
    refused(&equation("\"mean(\\\"Gas 1\\\") + men(RF)\""), 8, 31, &["did you mean"]);
    refused(&equation("\"\"\"\nmean(RF)\n  + men(RF)\"\"\""), 10, 5, &["did you mean"]);
    refused(&equation("\"\""), 8, 13, &["equation"]);
}

#[test]
fn a_bad_new_strategy_is_refused_and_counted_and_the_old_one_stays() {
    let holder = Holder::new(Strategy::parse(SMALL).unwrap());
    let first = holder.current().version().clone();
    let changed = SMALL.replace("520", "530");
    assert_eq!(holder.offer(&format!("# the same\n{SMALL}")), Reload::Same);
    assert!(matches!(holder.offer(&changed.replace("mean(", "men(")), Reload::Refused(_)));
    assert_eq!((holder.loaded(), holder.refused(), holder.current().version()), (0, 1, &first));
    assert_eq!(holder.refusal().unwrap().line, 8);
    let Reload::Loaded { from, to } = holder.offer(&changed) else { panic!() };
    assert_eq!((&from, &to), (&first, holder.current().version()));
    assert_ne!(from, to);
    assert_eq!((holder.loaded(), holder.refused(), holder.refusal()), (1, 1, None));
}

#[test]
fn a_file_is_given_when_its_text_changes_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("strategy.toml");
    let mut watch = FileWatch::new(&path);
    let now = SystemTime::now();
    let later = now + Duration::from_secs(3600);
    assert!(watch.look(now).is_err(), "it is not there");
    assert_eq!(watch.look(now).unwrap(), None, "told once");
    std::fs::write(&path, "one").unwrap();
    assert_eq!(watch.look(now).unwrap().as_deref(), Some("one"));
    assert_eq!(watch.look(now).unwrap(), None);
    // As long and maybe within the resolution of the clock, so the text itself is looked at.
    std::fs::write(&path, "two").unwrap();
    assert_eq!(watch.look(now).unwrap().as_deref(), Some("two"));
    assert_eq!(watch.look(later).unwrap(), None);
    assert_eq!(watch.look(later).unwrap(), None);
    std::fs::remove_file(&path).unwrap();
    assert!(watch.look(later).is_err());
    std::fs::write(&path, "two").unwrap();
    assert_eq!(watch.look(later).unwrap(), None, "back as it was");
    std::fs::write(&path, vec![b'#'; MAX_FILE + 1]).unwrap();
    assert!(watch.look(later).is_err());
}

#[test]
fn deep_nesting_and_large_files_are_refused() {
    assert!(Strategy::parse(&format!("a = {}", "[".repeat(100_000))).is_err());
    assert!(Strategy::parse(&format!("a{} = 1", ".a".repeat(100_000))).is_err());
    let error = Strategy::parse(&"#".repeat(MAX_FILE + 1)).unwrap_err();
    assert!(error.message.contains("bytes"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn prefixes_and_mutations_never_panic(cut in 0..SMALL.len(), at in 0..SMALL.len(), byte: u8) {
        let _ = Strategy::parse(&SMALL[..cut]).map_err(|error| error.to_string());
        let mut bytes = SMALL.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = Strategy::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string());
    }

    #[test]
    fn an_error_shows_a_place_that_the_file_has(text in "[a-z\\[\\]\"'=\n {}.ä]{0,60}") {
        if let Err(error) = Strategy::parse(&text) {
            prop_assert!(error.line <= text.matches('\n').count() + 1);
            let line = text.split('\n').nth(error.line - 1).unwrap_or_default();
            prop_assert!(error.column <= line.chars().count() + 1);
        }
    }
}
