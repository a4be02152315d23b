//! What a driver's error means here.

use sqlx::Error;

use crate::error::{Guard, StoreError};

/// The constraint over input ids, by the name PostgreSQL gives and the columns SQLite names.
const INPUT: [&str; 2] = ["event_input", "event.input_id"];

/// The constraint over places in the log, likewise.
const PLACE: [&str; 2] = ["event_pkey", "event.seq"];

/// The meaning of a driver's error.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An input id is in the log already.
    DuplicateInput,
    /// The idempotency key is taken.
    Idempotency,
    /// Anything else.
    Store(StoreError),
}

/// Reads a driver's error.
pub(crate) fn meaning(error: Error) -> Failure {
    let Some(database) = error.as_database_error() else {
        return Failure::Store(outside(error));
    };
    let code = database.code().unwrap_or_default().into_owned();
    let message = database.message();
    let constraint = database.constraint().unwrap_or(message);
    if database.is_unique_violation() && INPUT.iter().any(|name| constraint.contains(name)) {
        return Failure::DuplicateInput;
    }
    if message == "guard:taken" || database.is_unique_violation() && PLACE.iter().any(|name| constraint.contains(name))
    {
        return Failure::Store(StoreError::Corrupt {
            place: "the log".to_owned(),
            detail: "a row stands beyond the head of its session".to_owned(),
        });
    }
    if code == "TG007" {
        return Failure::Idempotency;
    }
    if let Some(guard) = guard(&code, constraint, message) {
        return Failure::Store(StoreError::Guard(guard));
    }
    if database.is_unique_violation() {
        return Failure::Store(StoreError::Invalid("a key of this append exists already"));
    }
    Failure::Store(match code.as_str() {
        // disk full: PostgreSQL's SQLSTATE, SQLite's SQLITE_FULL
        "53100" | "13" => StoreError::StorageFull(Box::new(error)),
        "XX001" | "XX002" | "11" | "26" => {
            StoreError::Corrupt { place: "the database file".to_owned(), detail: message.to_owned() }
        }
        _ if is_passing(&code) => StoreError::Unavailable(Box::new(error)),
        _ => StoreError::Database(Box::new(error)),
    })
}

/// The store's error alone, for statements that cannot be refused otherwise.
pub(crate) fn store_error(error: Error) -> StoreError {
    match meaning(error) {
        Failure::Store(error) => error,
        Failure::DuplicateInput | Failure::Idempotency => StoreError::Invalid("a key exists already"),
    }
}

fn outside(error: Error) -> StoreError {
    match error {
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) | Error::TypeNotFound { .. } => {
            StoreError::Corrupt { place: "a result row".to_owned(), detail: error.to_string() }
        }
        Error::Encode(_) => StoreError::Invalid("a value cannot be sent to the database"),
        other => StoreError::Unavailable(Box::new(other)),
    }
}

/// Conditions that pass: connection and operator (08, 57), resources (53), conflicts (40), lock time-outs (55P03), a
/// standby (25006), I/O (58); SQLite's BUSY, LOCKED and IOERR with their extended codes.
fn is_passing(code: &str) -> bool {
    let classes = ["08", "40", "53", "57", "58"];
    if code.len() == 5 && (classes.iter().any(|class| code.starts_with(class)) || ["55P03", "25006"].contains(&code)) {
        return true;
    }
    code.len() < 5 && code.parse::<u32>().is_ok_and(|number| matches!(number & 0xff, 5 | 6 | 10))
}

fn guard(code: &str, constraint: &str, message: &str) -> Option<Guard> {
    let rule = message.strip_prefix("guard:").unwrap_or_default();
    Some(match (code, constraint, rule) {
        (_, "event_decision", _) | (_, _, "second_decision") => Guard::SecondDecision,
        (_, "event_later_allow", _) | (_, _, "second_allow") => Guard::SecondAllow,
        (_, "event_dispatch", _) | (_, _, "second_dispatch") => Guard::SecondDispatch,
        (_, "event_terminal", _) | (_, _, "second_terminal") => Guard::SecondTerminal,
        ("TG001", ..) | (_, _, "dispatch_without_allow") => Guard::DispatchWithoutAllow,
        ("TG002", ..) | (_, _, "dispatch_after_terminal") => Guard::DispatchAfterTerminal,
        ("TG003", ..) | (_, _, "terminal_without_decision") => Guard::TerminalWithoutDecision,
        ("TG004", ..) | (_, _, "allow_without_decision") => Guard::AllowWithoutDecision,
        ("TG005", ..) | (_, _, "session_closed") => Guard::SessionClosed,
        ("TG006", ..) | (_, _, "append_only") => Guard::AppendOnly,
        _ => return None,
    })
}

/// The same failure for each append of a batch that was lost as a whole.
pub(crate) fn again(error: &StoreError) -> StoreError {
    let text = error.to_string();
    match error {
        StoreError::StorageFull(_) => StoreError::StorageFull(text.into()),
        _ => StoreError::Unavailable(text.into()),
    }
}
