//! What every backend refuses alike, so that what works on one works on all.

use bytes::Bytes;

use super::{BucketConfig, Error, LogConfig};

/// The largest value or message: 1 MiB, less the room that a NATS server wants for headers within it.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024 - 1024;
/// The longest message id; it travels in the headers.
pub const MESSAGE_ID_BYTES_MAX: usize = 512;
/// The most values that a bucket keeps of a key.
pub const HISTORY_MAX: u8 = 64;

/// Refuses a value that no backend takes.
pub fn value(what: &str, value: &Bytes) -> Result<(), Error> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::TooLarge { what: what.to_owned(), size: value.len(), limit: VALUE_BYTES_MAX });
    }
    Ok(())
}

/// Refuses a key that no backend takes: tokens of `A–Z a–z 0–9 - _ = /`, parted by dots.
pub fn key(key: &str) -> Result<(), Error> {
    tokens("key", key, |c| c.is_ascii_alphanumeric() || "-_=/".contains(c))
}

/// Refuses a subject that no backend takes: tokens without white space and wildcards, parted by dots.
pub fn subject(subject: &str) -> Result<(), Error> {
    tokens("subject", subject, |c| c.is_ascii_graphic() && c != '*' && c != '>')
}

/// Refuses a message id that is empty, too long, or would break a header.
pub fn message_id(id: &str) -> Result<(), Error> {
    if id.is_empty() || id.len() > MESSAGE_ID_BYTES_MAX || !id.bytes().all(|b| b.is_ascii_graphic()) {
        let reason = format!("{id:?} is no message id: 1 to {MESSAGE_ID_BYTES_MAX} visible ASCII characters");
        return Err(Error::invalid("message id", reason));
    }
    Ok(())
}

/// Refuses a bucket that no backend can make.
pub fn bucket(config: &BucketConfig) -> Result<(), Error> {
    name("bucket", &config.name)?;
    if !(1..=HISTORY_MAX).contains(&config.history) {
        let reason = format!("history is {}, must be 1 to {HISTORY_MAX}", config.history);
        return Err(Error::invalid(format!("bucket {}", config.name), reason));
    }
    Ok(())
}

/// Refuses a log that no backend can make.
pub fn log(config: &LogConfig) -> Result<(), Error> {
    name("log", &config.name)?;
    if config.subjects.is_empty() {
        return Err(Error::invalid(format!("log {}", config.name), "it has no subjects"));
    }
    Ok(())
}

/// Refuses a subject that the log does not take.
pub fn subject_of_log(config: &LogConfig, subject: &str) -> Result<(), Error> {
    self::subject(subject)?;
    if config.subjects.iter().any(|pattern| matches(pattern, subject)) {
        return Ok(());
    }
    let reason = format!("the log {} takes only {}", config.name, config.subjects.join(", "));
    Err(Error::invalid(format!("subject {subject}"), reason))
}

fn matches(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for token in pattern.split('.') {
        match (token, subject.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (token, Some(other)) if token == other => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

fn name(kind: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        return Err(Error::invalid(kind, format!("{name:?} is no name: letters, digits, - and _ only")));
    }
    Ok(())
}

fn tokens(kind: &str, text: &str, allowed: impl Fn(char) -> bool) -> Result<(), Error> {
    if text.len() > 255 {
        return Err(Error::invalid(
            kind,
            format!("it has {} characters, at most 255 are allowed", text.len()),
        ));
    }
    if text.split('.').any(str::is_empty) {
        return Err(Error::invalid(kind, format!("{text:?} has an empty part")));
    }
    match text.chars().find(|&c| c != '.' && !allowed(c)) {
        Some(bad) => Err(Error::invalid(kind, format!("{text:?} has {bad:?}, which is not allowed"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_token_and_an_arrow_for_one_or_more() {
        assert!(matches("run.*.*.done", "run.t1.c1.done"));
        assert!(!matches("run.*.*.done", "run.t1.done"));
        assert!(!matches("run.*.*.done", "run.t1.c1.done.x"));
        assert!(matches("dlq.>", "dlq.t.c.1-2"));
        assert!(!matches("dlq.>", "dlq"));
    }

    #[test]
    fn bad_names_are_refused_with_the_first_bad_character() {
        assert!(key("etch-01.A").is_ok());
        assert!(key("etch:01").unwrap_err().to_string().contains("':'"));
        assert!(key("a..b").is_err());
        assert!(subject("run.t.*.done").unwrap_err().to_string().contains("'*'"));
        assert!(subject("").is_err());
        assert!(message_id("t:c:ctx").is_ok());
        assert!(message_id("a\r\nb").is_err());
    }
}
