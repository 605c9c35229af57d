//! Schema versions: each entry of the list brings a file from one version to the next.

use std::path::Path;

use rusqlite::Connection;

use super::Error;

pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
];

/// Brings the file to the newest version, all steps or none; refuses a file that is newer still.
pub(super) fn migrate(connection: &mut Connection, file: &Path, migrations: &[&str]) -> Result<(), Error> {
    let version = check(connection, file, migrations)?;
    let transaction = connection.transaction()?;
    for step in &migrations[version..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", migrations.len() as i64)?;
    Ok(transaction.commit()?)
}

/// The file's version, unless it is newer than we are.
pub(super) fn check(connection: &Connection, file: &Path, migrations: &[&str]) -> Result<usize, Error> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match usize::try_from(found) {
        Ok(version) if version <= migrations.len() => Ok(version),
        _ => Err(Error::Newer { file: file.to_owned(), found, known: migrations.len() as i64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_an_earlier_version_is_brought_up_and_keeps_what_it_holds() {
        let file = Path::new("x.db");
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, file, &["CREATE TABLE a (x)"]).unwrap();
        connection.execute("INSERT INTO a VALUES (7)", []).unwrap();
        let two = ["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y DEFAULT 8"];
        migrate(&mut connection, file, &two).unwrap();
        migrate(&mut connection, file, &two).unwrap();
        let row: (i64, i64) =
            connection.query_row("SELECT x, y FROM a", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(row, (7, 8));
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let file = Path::new("x.db");
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, file, &["CREATE TABLE a (x)"]).unwrap();
        let broken = ["CREATE TABLE a (x)", "CREATE TABLE b (x)", "no such statement"];
        migrate(&mut connection, file, &broken).unwrap_err();
        assert_eq!(check(&connection, file, &broken).unwrap(), 1);
        connection.execute("SELECT * FROM b", []).unwrap_err();
    }

    #[test]
    fn a_newer_file_is_refused_with_both_versions() {
        let connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", 9).unwrap();
        let refused = check(&connection, Path::new("x.db"), &["CREATE TABLE a (x)"]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "x.db has schema version 9, this program knows versions up to 1: use a newer phalanx"
        );
    }
}
