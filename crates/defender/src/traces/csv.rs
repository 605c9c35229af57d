//! CSV files of traces, wide and long.

use super::recording::{Recording, RecordingError, time};

pub(super) fn read(bytes: &[u8]) -> Result<Recording, RecordingError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes);
    let header = reader.headers().map_err(wrong)?.clone();
    let columns: Vec<&str> = header.iter().collect();
    match columns[..] {
        // What `mebo decode --csv` prints of a blob with tags; equations know no tags.
        ["time" | "timestamp", "svid" | "metric", "value"]
        | ["time" | "timestamp", "svid" | "metric", "value", "tag"] => long(reader),
        ["time" | "timestamp", _, ..] => wide(reader, &columns),
        _ => {
            let shown: String = columns.join(",").chars().take(80).collect();
            let message = format!(
                "the header is {shown:?}; it must be time,svid,value with a line for each point, or time and a column for each SVID"
            );
            Err(RecordingError::at("line 1", message))
        }
    }
}

fn wrong(error: csv::Error) -> RecordingError {
    let line = error.position().map_or(1, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => RecordingError::at(
            format!("line {line}"),
            format!("{len} cells, where the header has {expected_len}"),
        ),
        csv::ErrorKind::Utf8 { .. } => RecordingError::at(format!("line {line}"), "it is not UTF-8 text"),
        _ => RecordingError::at(format!("line {line}"), error.to_string()),
    }
}

/// Calls `take` with every row.
fn rows(
    mut reader: csv::Reader<&[u8]>,
    mut take: impl FnMut(&csv::StringRecord) -> Result<(), String>,
) -> Result<(), RecordingError> {
    let mut row = csv::StringRecord::new();
    while reader.read_record(&mut row).map_err(wrong)? {
        take(&row).map_err(|message| {
            let line = row.position().map_or(0, csv::Position::line);
            RecordingError::at(format!("line {line}"), message)
        })?;
    }
    Ok(())
}

fn long(reader: csv::Reader<&[u8]>) -> Result<Recording, RecordingError> {
    let mut recording = Recording::default();
    rows(reader, |row| {
        let place = recording.place(&row[1])?;
        recording.push(place, time(&row[0])?, value(&row[2])?)
    })?;
    Ok(recording)
}

fn wide(reader: csv::Reader<&[u8]>, columns: &[&str]) -> Result<Recording, RecordingError> {
    let mut recording = Recording::default();
    for (place, svid) in columns[1..].iter().enumerate() {
        let found = recording.place(svid).map_err(|message| RecordingError::at("line 1", message))?;
        if found != place {
            return Err(RecordingError::at("line 1", format!("the column {svid:?} stands there twice")));
        }
    }
    rows(reader, |row| {
        let time = time(&row[0])?;
        for (place, cell) in row.iter().skip(1).enumerate() {
            if !cell.is_empty() {
                recording.push(place, time, value(cell)?)?;
            }
        }
        Ok(())
    })?;
    Ok(recording)
}

/// Values that are not finite are part of traces; the equation says what comes of them.
fn value(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        format!("the value {shown:?} is not a number")
    })
}
