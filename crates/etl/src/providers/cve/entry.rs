//! One CVE: what we keep of it in columns, and what stays in the raw source only.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::record::{Link, Record, Reject, Verdict};
use crate::{Urn, text};

type Text<'a> = Cow<'a, str>;

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    cve: Cve<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cve<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    published: Option<Text<'a>>,
    #[serde(borrow)]
    last_modified: Option<Text<'a>>,
    #[serde(borrow)]
    vuln_status: Option<Text<'a>>,
    #[serde(borrow, default)]
    descriptions: Vec<Description<'a>>,
    #[serde(borrow, default)]
    metrics: Metrics<'a>,
    #[serde(borrow, default)]
    weaknesses: Vec<Weakness<'a>>,
    #[serde(borrow, default)]
    configurations: Vec<Configuration<'a>>,
    #[serde(borrow, default)]
    references: Vec<Reference<'a>>,
    #[serde(borrow)]
    cisa_exploit_add: Option<Text<'a>>,
    #[serde(borrow)]
    cisa_action_due: Option<Text<'a>>,
    #[serde(borrow)]
    cisa_required_action: Option<Text<'a>>,
    #[serde(borrow)]
    cisa_vulnerability_name: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Description<'a> {
    #[serde(borrow)]
    lang: Text<'a>,
    #[serde(borrow)]
    value: Text<'a>,
}

#[derive(Default, Deserialize)]
struct Metrics<'a> {
    #[serde(borrow, default, rename = "cvssMetricV40")]
    v40: Vec<Metric<'a>>,
    #[serde(borrow, default, rename = "cvssMetricV31")]
    v31: Vec<Metric<'a>>,
    #[serde(borrow, default, rename = "cvssMetricV30")]
    v30: Vec<Metric<'a>>,
    #[serde(borrow, default, rename = "cvssMetricV2")]
    v2: Vec<Metric<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metric<'a> {
    #[serde(borrow)]
    source: Option<Text<'a>>,
    #[serde(borrow, rename = "type")]
    rank: Option<Text<'a>>,
    #[serde(borrow)]
    cvss_data: Cvss<'a>,
    /// Version 2 has it here, the others in the data.
    #[serde(borrow)]
    base_severity: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cvss<'a> {
    #[serde(borrow)]
    version: Text<'a>,
    #[serde(borrow)]
    vector_string: Text<'a>,
    base_score: f64,
    #[serde(borrow)]
    base_severity: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Weakness<'a> {
    #[serde(borrow, default)]
    description: Vec<Description<'a>>,
}

#[derive(Deserialize)]
struct Configuration<'a> {
    #[serde(borrow, default)]
    nodes: Vec<Node<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    #[serde(borrow, default)]
    cpe_match: Vec<CpeMatch<'a>>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CpeMatch<'a> {
    #[serde(borrow)]
    criteria: Text<'a>,
    vulnerable: bool,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    version_start_including: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    version_start_excluding: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    version_end_including: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    version_end_excluding: Option<Text<'a>>,
}

#[derive(Deserialize, Serialize)]
struct Reference<'a> {
    #[serde(borrow)]
    url: Text<'a>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<Text<'a>>,
}

/// What the column `details` holds.
#[derive(Serialize)]
struct Details<'a> {
    cvss: Vec<Score<'a>>,
    cpe: Vec<&'a CpeMatch<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kev: Option<Kev<'a>>,
    references: &'a [Reference<'a>],
}

#[derive(Serialize)]
struct Score<'a> {
    version: &'a str,
    vector: &'a str,
    score: f64,
    severity: Option<&'a str>,
    source: Option<&'a str>,
    #[serde(rename = "type")]
    rank: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kev<'a> {
    name: Option<&'a str>,
    added: &'a str,
    due: Option<&'a str>,
    required_action: Option<&'a str>,
}

pub(super) fn understand(raw: &[u8]) -> Result<Verdict, Reject> {
    let Entry { cve } = serde_json::from_slice(raw).map_err(Reject::new)?;
    let urn = Urn::new("cve", &cve.id).map_err(Reject::new)?;
    let english = cve.descriptions.iter().find(|text| text.lang == "en").or(cve.descriptions.first());
    let description = english.map(|text| text.value.as_ref()).unwrap_or_default();
    let scores = scores(&cve.metrics);
    let details = Details {
        cpe: cve.configurations.iter().flat_map(|one| &one.nodes).flat_map(|node| &node.cpe_match).collect(),
        kev: cve.cisa_exploit_add.as_deref().map(|added| Kev {
            name: cve.cisa_vulnerability_name.as_deref(),
            added,
            due: cve.cisa_action_due.as_deref(),
            required_action: cve.cisa_required_action.as_deref(),
        }),
        references: &cve.references,
        cvss: scores,
    };
    let severity = foremost(&details.cvss).and_then(|score| score.severity).map(str::to_owned);
    let title = text::headline(cve.cisa_vulnerability_name.as_deref().unwrap_or(description), 80);
    Ok(Verdict::Record(Box::new(Record {
        subtype: "vulnerability",
        title,
        text: description.to_owned(),
        published: cve.published.as_deref().map(str::to_owned),
        modified: cve.last_modified.as_deref().map(str::to_owned),
        status: cve.vuln_status.as_deref().map(str::to_owned),
        severity,
        details: serde_json::to_string(&details).map_err(Reject::new)?,
        links: weaknesses(&cve.weaknesses),
        urn,
    })))
}

/// All scores, the newest version of CVSS first.
fn scores<'a>(metrics: &'a Metrics<'_>) -> Vec<Score<'a>> {
    [&metrics.v40, &metrics.v31, &metrics.v30, &metrics.v2]
        .into_iter()
        .flatten()
        .map(|metric| Score {
            version: &metric.cvss_data.version,
            vector: &metric.cvss_data.vector_string,
            score: metric.cvss_data.base_score,
            severity: metric.cvss_data.base_severity.as_deref().or(metric.base_severity.as_deref()),
            source: metric.source.as_deref(),
            rank: metric.rank.as_deref(),
        })
        .collect()
}

/// The score a list shows: of the newest version, the primary one where there is one.
fn foremost<'a, 'b>(scores: &'b [Score<'a>]) -> Option<&'b Score<'a>> {
    let newest = scores.first()?.version;
    scores
        .iter()
        .filter(|score| score.version == newest)
        .find(|score| score.rank == Some("Primary"))
        .or(scores.first())
}

/// The CWEs; placeholders such as NVD-CWE-noinfo name none.
fn weaknesses(weaknesses: &[Weakness<'_>]) -> Vec<Link> {
    let mut links: Vec<Link> = weaknesses
        .iter()
        .flat_map(|weakness| &weakness.description)
        .filter_map(|text| Urn::new("cwe", &text.value).ok())
        .map(|to| Link { kind: "weakness", to })
        .collect();
    links.sort_unstable();
    links.dedup();
    links
}
