//! Reads what judges the points of a chart.

use phalanx_spc::chart::{Design, Kind};
use phalanx_spc::rules::{Rule, Sides};
use serde::Deserialize;
use toml::Spanned;

use super::chart::{ChartRule, Check, RuleMeaning};
use super::file::{Read, Reader};
use crate::record::Severity;

/// A trend longer than this would need more history than is kept.
const LONGEST_TREND: u64 = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    rule: Spanned<String>,
    severity: Severity,
    lambda: Option<Spanned<f64>>,
    sigmas: Option<Spanned<f64>>,
    k: Option<Spanned<f64>>,
    h: Option<Spanned<f64>>,
    points: Option<Spanned<i64>>,
}

impl Reader<'_> {
    pub(super) fn rules(
        &self,
        raw: &Spanned<Vec<Spanned<RawRule>>>,
        sides: Sides,
    ) -> Read<(Vec<ChartRule>, Vec<RuleMeaning>)> {
        let (mut rules, mut meanings) = (Vec::<ChartRule>::new(), Vec::new());
        for one in raw.get_ref() {
            let RawRule { rule: name, severity, .. } = one.get_ref();
            for (check, parameters) in self.checks(one, sides)? {
                if rules.iter().any(|known| known.check.name() == check.name()) {
                    let message = format!("the rule {} stands here twice", check.name());
                    return Err(self.at(name.span(), message).hint("a rule has one severity on a chart"));
                }
                let meaning = RuleMeaning { rule: check.name(), severity: *severity, parameters };
                rules.push(ChartRule { check, severity: *severity, definition: meaning.definition() });
                meanings.push(meaning);
            }
        }
        Ok((rules, meanings))
    }

    /// The rules that a name stands for, with their parameters.
    fn checks(&self, raw: &Spanned<RawRule>, sides: Sides) -> Read<Vec<(Check, Vec<f64>)>> {
        let rule = raw.get_ref();
        let RawRule { rule: name, lambda, sigmas, k, h, points, .. } = rule;
        let allowed: &[&str] = match name.get_ref().as_str() {
            "ewma" => &["lambda", "sigmas"],
            "cusum" => &["k", "h"],
            "trend" => &["points"],
            _ => &[],
        };
        let given = [
            ("lambda", lambda.as_ref().map(Spanned::span)),
            ("sigmas", sigmas.as_ref().map(Spanned::span)),
            ("k", k.as_ref().map(Spanned::span)),
            ("h", h.as_ref().map(Spanned::span)),
            ("points", points.as_ref().map(Spanned::span)),
        ];
        let stray = given
            .into_iter()
            .find_map(|(key, span)| span.filter(|_| !allowed.contains(&key)).map(|span| (key, span)));
        if let Some((key, span)) = stray {
            let message = format!("the rule {} has no {key}", name.get_ref());
            let hint = if allowed.is_empty() {
                "it has no parameters".to_owned()
            } else {
                format!("it has {}", allowed.join(" and "))
            };
            return Err(self.at(span, message).hint(hint));
        }
        // The centre and σ are put in when they are known; these stand in for them while the design is checked.
        let checked = |kind, sigmas| {
            let design = Design { sides, sigmas, target: Some(0.0), sd: Some(1.0), ..Design::new(kind) };
            design.check().map_err(|error| self.at(raw.span(), error.to_string()))?;
            Ok(design)
        };
        match name.get_ref().as_str() {
            "ewma" => {
                let lambda = self.number(lambda.as_ref())?.unwrap_or(0.2);
                let sigmas = self.number(sigmas.as_ref())?.unwrap_or(3.0);
                let design = checked(Kind::Ewma { lambda, asymptotic: false }, sigmas)?;
                Ok(vec![(Check::Ewma(design), vec![lambda, sigmas])])
            }
            "cusum" => {
                let k = self.number(k.as_ref())?.unwrap_or(0.5);
                let h = self.number(h.as_ref())?.unwrap_or(5.0);
                let design = checked(Kind::Cusum { k, h }, 3.0)?;
                Ok(vec![(Check::Cusum(design), vec![k, h])])
            }
            "trend" => {
                let points = self.count(points.as_ref(), 3..=LONGEST_TREND, "a trend of points")?.unwrap_or(6);
                Ok(vec![(Check::Trend(points as usize), vec![points as f64])])
            }
            "western-electric" => Ok(plain(&Rule::WESTERN_ELECTRIC)),
            "nelson" => Ok(plain(&Rule::NELSON)),
            one => match one.parse::<Rule>() {
                Ok(rule) => Ok(plain(&[rule])),
                Err(_) => Err(self.at(name.span(), format!("there is no rule `{one}`")).hint(
                    "rules are limits, western-electric (we-1 to we-4), nelson (nelson-1 to nelson-8), ewma, cusum and trend",
                )),
            },
        }
    }
}

fn plain(rules: &[Rule]) -> Vec<(Check, Vec<f64>)> {
    rules.iter().map(|&rule| (Check::Run(rule), Vec::new())).collect()
}
