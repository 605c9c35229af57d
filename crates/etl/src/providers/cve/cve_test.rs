use serde_json::{Value, json};

use super::*;
use crate::Record;

fn understand(cve: Value) -> Result<Record, Reject> {
    let raw = json!({ "cve": cve }).to_string().into_bytes();
    match Cve.understand(&Item { position: 0, raw })? {
        Verdict::Record(record) => Ok(*record),
        Verdict::Skip(why) => panic!("skipped: {why}"),
    }
}

fn metric(version: &str, rank: &str, severity: &str) -> Value {
    json!({"source": "s", "type": rank, "cvssData":
        {"version": version, "vectorString": "v", "baseScore": 5.0, "baseSeverity": severity}})
}

#[test]
fn every_version_of_cvss_is_kept_and_the_newest_primary_one_counts() {
    let record = understand(json!({"id": "CVE-2024-1000", "metrics": {
        "cvssMetricV2": [{"type": "Primary", "baseSeverity": "LOW",
            "cvssData": {"version": "2.0", "vectorString": "v", "baseScore": 2.1}}],
        "cvssMetricV30": [metric("3.0", "Primary", "MEDIUM")],
        "cvssMetricV31": [metric("3.1", "Primary", "HIGH")],
        "cvssMetricV40": [metric("4.0", "Secondary", "LOW"), metric("4.0", "Primary", "CRITICAL")],
    }}))
    .unwrap();
    assert_eq!(record.severity.as_deref(), Some("CRITICAL"));
    let details: Value = serde_json::from_str(&record.details).unwrap();
    let versions: Vec<_> =
        details["cvss"].as_array().unwrap().iter().map(|one| one["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["4.0", "4.0", "3.1", "3.0", "2.0"]);
    assert_eq!(details["cvss"][4]["severity"], "LOW");
}

#[test]
fn ranges_weaknesses_kev_and_references_are_kept() {
    let record = understand(json!({
        "id": "CVE-2024-1000",
        "descriptions": [{"lang": "es", "value": "hola"}, {"lang": "en", "value": "hello\nworld"}],
        "weaknesses": [{"description": [{"lang": "en", "value": "NVD-CWE-noinfo"}]},
            {"description": [{"lang": "en", "value": "CWE-79"}, {"lang": "en", "value": "CWE-20"}]},
            {"description": [{"lang": "en", "value": "CWE-79"}]}],
        "configurations": [{"nodes": [{"operator": "OR", "negate": false, "cpeMatch": [
            {"criteria": "cpe:2.3:a:x", "vulnerable": true, "versionStartIncluding": "1", "versionEndExcluding": "2"}]}]}],
        "references": [{"url": "https://example.org", "tags": ["Patch"]}],
        "cisaExploitAdd": "2024-01-02", "cisaActionDue": "2024-02-02",
        "cisaRequiredAction": "Patch it.", "cisaVulnerabilityName": "A Hole",
    }))
    .unwrap();
    let links: Vec<_> = record.links.iter().map(|link| link.to.id()).collect();
    assert_eq!(links, ["CWE-20", "CWE-79"]);
    let details: Value = serde_json::from_str(&record.details).unwrap();
    assert_eq!(details["cpe"][0]["versionEndExcluding"], "2");
    assert_eq!(details["kev"]["added"], "2024-01-02");
    assert_eq!(details["references"][0]["url"], "https://example.org");
    assert_eq!((record.title.as_str(), record.text.as_str()), ("A Hole", "hello\nworld"));
}

#[test]
fn a_bad_record_is_rejected_with_its_reason() {
    let why = |cve| understand(cve).unwrap_err().0;
    assert!(why(json!({"id": "2024-1"})).contains("CVE-YYYY-NNNN"));
    assert!(why(json!({"id": 7})).contains("invalid type"));
    assert!(why(json!({})).contains("missing field `id`"));
    assert!(why(json!({"id": "CVE-2024-1000", "descriptions": "none"})).contains("invalid type"));
}

fn feed(text: &str) -> Result<Vec<Vec<u8>>, RowsError> {
    let mut feed = Feed::open(text.as_bytes())?;
    let mut rows = Vec::new();
    while let Some(row) = feed.next_row()? {
        rows.push(row);
    }
    Ok(rows)
}

#[test]
fn other_formats_are_refused_by_name() {
    let why = |text: &str| match feed(text) {
        Err(RowsError::Format(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(r#"{"CVE_data_type": "CVE", "CVE_Items": []}"#).contains("CVE_Items"));
    assert!(why(r#"{"format": "NVD_CPE", "vulnerabilities": []}"#).contains("NVD_CPE"));
    assert!(why(r#"{"version": "3.0", "vulnerabilities": []}"#).contains("3.0"));
    assert!(why("<xml/>").contains("no JSON object"));
}

#[test]
fn a_saved_page_declares_what_is_left_of_the_total_up_to_a_page() {
    let declared = |header: &str| {
        let text = format!("{{{header}, \"vulnerabilities\": []}}");
        Feed::open(text.as_bytes()).unwrap().declared()
    };
    assert_eq!(declared(r#""resultsPerPage": 38, "startIndex": 0, "totalResults": 38"#), Some(38));
    assert_eq!(declared(r#""resultsPerPage": 2000, "startIndex": 4000, "totalResults": 4500"#), Some(500));
    assert_eq!(declared(r#""resultsPerPage": 2000, "startIndex": 0, "totalResults": 4500"#), Some(2000));
    assert_eq!(declared(r#""format": "NVD_CVE""#), None);
}
