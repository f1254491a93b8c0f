//! What SQLite and the system say, as errors that tell the caller what to do.

use std::io;
use std::path::Path;

use rusqlite::{Error as SqlError, ErrorCode};
use tenure::Error;

/// Makes an error of what SQLite said about the database at `path`.
pub(crate) fn of_sqlite(path: &Path, error: &SqlError) -> Error {
    let file = path.display();
    let SqlError::SqliteFailure(failure, _) = error else {
        return of_record(path, error);
    };
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Error::unavailable(format!(
            "{file} is locked by another process: try again, or see which one with `fuser {file}`"
        )),
        ErrorCode::DiskFull => Error::unavailable(format!(
            "the disk of {file} is full: make room; what was confirmed is not lost"
        )),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Error::corrupt(format!(
            "{file} is damaged or no database at all ({error}): stop all who use it, move it away, \
             and the next start makes a new one"
        )),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Error::misconfigured(format!(
            "{file} cannot be written ({error}): give this user the right to write the file and its folder"
        )),
        ErrorCode::CannotOpen => Error::misconfigured(format!(
            "{file} cannot be opened ({error}): see that the folder is there and that this user may write in it"
        )),
        ErrorCode::Unknown if is_missing_column(error) => Error::corrupt(format!(
            "{file} has not the tables of a tenure database ({error}): move it away, and the next start makes a new one"
        )),
        _ => Error::unavailable(format!("{file} cannot be used now ({error}): try again")),
    }
}

fn is_missing_column(error: &SqlError) -> bool {
    let text = error.to_string();
    text.contains("no such column") || text.contains("no such table")
}

/// A record that is there but does not hold what it should.
fn of_record(path: &Path, error: &SqlError) -> Error {
    Error::corrupt(format!(
        "a record in {} cannot be read ({error}): look at it with `sqlite3`, and delete it if nobody holds it",
        path.display()
    ))
}

/// Makes an error of what the system said when it was to `what` the file at `path`.
pub(crate) fn of_system(what: &str, path: &Path, error: &io::Error) -> Error {
    let file = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::misconfigured(format!(
                "cannot {what} {file} ({error}): give this user the right to write there, or choose another path"
            ))
        }
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidFilename => Error::misconfigured(format!(
            "cannot {what} {file} ({error}): choose another path"
        )),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::unavailable(format!("cannot {what} {file}, the disk is full: make room"))
        }
        _ => Error::unavailable(format!("cannot {what} {file} ({error}): try again")),
    }
}
