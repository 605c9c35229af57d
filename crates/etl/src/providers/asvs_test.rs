use proptest::prelude::*;

use super::*;

const FIVE: &str = "chapter_id,chapter_name,section_id,section_name,req_id,req_description,L\n\
                    V1,Encoding,V1.1,Architecture,V1.1.1,Verify it.,2\n";
const FOUR: &str = "chapter_id,chapter_name,section_id,section_name,req_id,req_description,level1,level2,level3,cwe,nist\n\
                    V1,Design,V1.1,Lifecycle,V1.1.2,Verify that.,,✓,✓,1053,5.1\n";

fn rows(text: &str, location: &str, version: Option<&str>) -> Result<Vec<Item>, RowsError> {
    let input = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    let mut rows = open_rows(input, location, version.map(str::to_owned))?;
    let mut items = Vec::new();
    while let Some(raw) = rows.next_row()? {
        items.push(Item { position: items.len() as u64, raw });
    }
    Ok(items)
}

#[track_caller]
fn record(text: &str, location: &str, version: Option<&str>) -> Record {
    let items = rows(text, location, version).unwrap();
    match Asvs.understand(&items[0]).unwrap() {
        Verdict::Record(record) => *record,
        Verdict::Skip(why) => panic!("skipped: {why}"),
    }
}

#[test]
fn the_version_is_said_outright_or_in_the_name_or_by_the_layout() {
    let id = |text, name, version| record(text, name, version).urn.id().to_owned();
    assert_eq!(id(FIVE, "x.csv", None), "5.0.0-V1.1.1");
    assert_eq!(id(FOUR, "x.csv", None), "4.0.3-V1.1.2");
    assert_eq!(id(FOUR, "a/asvs-5.0.0-en.csv", None), "5.0.0-V1.1.2", "a 5.0.0 file in the older layout");
    assert_eq!(id(FOUR, "a/asvs-5.0.0-en.csv", Some("5.1.0")), "5.1.0-V1.1.2");
    assert_eq!(
        id(FIVE, "OWASP_Application_Security_Verification_Standard_5.0.0_en.csv", None),
        "5.0.0-V1.1.1"
    );
}

#[test]
fn levels_and_weaknesses_are_read_in_both_layouts() {
    let five = record(FIVE, "x.csv", None);
    assert_eq!((five.severity.as_deref(), five.links.len()), (Some("L2"), 0));
    let four = record(FOUR, "x.csv", None);
    assert_eq!(four.severity.as_deref(), Some("L2"));
    assert_eq!(four.links[0].to.as_str(), "v2e::mitre::cwe::CWE-1053");
    assert!(four.details.contains(r#""nist":"5.1""#));
}

#[test]
fn another_table_is_refused_by_its_columns() {
    let Err(refused) = rows("a,b\n1,2\n", "x.csv", None) else { panic!("it was read") };
    assert!(matches!(&refused, RowsError::Format(why) if why.contains("`a,b`")), "{refused}");
}

#[test]
fn a_bad_row_is_rejected_with_its_reason() {
    let bad = |row: &str| {
        let header = FIVE.lines().next().unwrap();
        let items = rows(&format!("{header}\n{row}\n"), "x.csv", None).unwrap();
        Asvs.understand(&items[0]).unwrap_err().0
    };
    assert!(bad("V1,E,V1.1,A,1.1,Verify,2").contains("not the id of a requirement"));
    assert!(bad("V1,E,V1.1,A,V1.1.1,,2").contains("no text"));
    assert!(bad("V1,E,V1.1,A,V1.1.1,Verify,9").contains("no level"));
    assert!(bad("V1,E").contains("not the id"));
}

proptest! {
    #[test]
    fn mutated_and_truncated_files_never_panic(at in 0usize..150, byte in any::<u8>(), len in 0usize..200) {
        let mut bytes = FOUR.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(len);
        if let Ok(mut rows) = open_rows(Box::new(std::io::Cursor::new(bytes)), "x.csv", None) {
            while let Ok(Some(raw)) = rows.next_row() {
                let _ = Asvs.understand(&Item { position: 0, raw });
            }
        }
    }
}
