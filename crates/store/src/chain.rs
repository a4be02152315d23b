//! The hash chain over a session's rows, and its checker. What is not here: signed checkpoints, and what the events mean.

use sha2::{Digest, Sha256};
use toolgate_core::id::{SessionId, Sha256Digest, TenantId};

use crate::header::Header;
use crate::row::Row;

/// Separates these hashes from all others.
pub const DOMAIN: &str = "toolgate.event.v1";

/// The hash before the first row.
pub const GENESIS: [u8; 32] = [0; 32];

/// Where the next row goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Its seq.
    pub seq: u64,
    /// Its epoch.
    pub epoch: u64,
    /// The hash of the row before.
    pub prev_hash: [u8; 32],
}

impl Position {
    /// The place of a session's first row.
    pub const FIRST: Self = Self { seq: 1, epoch: 1, prev_hash: GENESIS };

    /// The place after a row, in the same epoch.
    #[must_use]
    pub const fn after(row: &Row) -> Self {
        Self { seq: row.seq.saturating_add(1), epoch: row.epoch, prev_hash: row.hash }
    }
}

/// The hash of a row: SHA-256 over length-framed domain, previous hash, tenant, session, seq, epoch, kind, time and header.
///
/// Each part is preceded by its length as eight big-endian bytes; numbers are eight big-endian bytes. The payload and the
/// other columns are covered because the header holds the payload's digest and the same values.
#[must_use]
pub fn row_hash(tenant: &TenantId, session: SessionId, row: &Row) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(DOMAIN.as_bytes());
    part(&row.prev_hash);
    part(tenant.as_str().as_bytes());
    part(session.uuid().as_bytes());
    part(&row.seq.to_be_bytes());
    part(&row.epoch.to_be_bytes());
    part(row.kind.as_bytes());
    part(&row.recorded_at.as_micros().to_be_bytes());
    part(&row.header);
    hash.finalize().into()
}

/// Where a log is expected to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The seq of the last row; 0 for an empty log.
    pub seq: u64,
    /// The hash of the last row.
    pub hash: [u8; 32],
}

/// The first place at which a log does not hold together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("row {seq}: {flaw}")]
pub struct Broken {
    /// The first bad seq.
    pub seq: u64,
    /// What is wrong there.
    pub flaw: Flaw,
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Another seq stands where this one belongs.
    #[error("row {found} stands here: rows are missing, repeated or out of order")]
    Gap {
        /// The seq found.
        found: u64,
    },
    /// The log ends before the head row says.
    #[error("the log ends before this row")]
    Truncated,
    /// The log goes on after the head row says.
    #[error("the log goes on after its head")]
    BeyondHead,
    /// The head row has another hash.
    #[error("the last row is not the one the head names")]
    HeadHash,
    /// It does not follow the row before.
    #[error("`prev_hash` is not the hash of the row before")]
    PrevHash,
    /// Its content is not what was hashed, or it comes from another session or tenant.
    #[error("the hash does not fit the row, its session and its tenant")]
    Hash,
    /// The epoch is lower than before, or zero.
    #[error("the epoch goes back")]
    EpochBack,
    /// The header cannot be read.
    #[error("the header is unreadable")]
    Header,
    /// A column says something else than the header.
    #[error("column `{column}` disagrees with the header")]
    Column {
        /// The column.
        column: &'static str,
    },
    /// The payload is not the one that was recorded.
    #[error("the payload is not the one that was recorded")]
    Payload,
}

/// Checks a log row by row, so that any length fits in memory.
#[derive(Debug, Clone)]
pub struct Checker<'a> {
    tenant: &'a TenantId,
    session: SessionId,
    next: Position,
}

impl<'a> Checker<'a> {
    /// Starts before the first row.
    #[must_use]
    pub const fn new(tenant: &'a TenantId, session: SessionId) -> Self {
        Self { tenant, session, next: Position::FIRST }
    }

    /// Starts behind a row of a log whose beginning was checked before.
    #[must_use]
    pub const fn behind(tenant: &'a TenantId, session: SessionId, row: &Row) -> Self {
        Self { tenant, session, next: Position::after(row) }
    }

    /// Checks the next row.
    pub fn row(&mut self, row: &Row) -> Result<(), Broken> {
        let broken = |flaw| Err(Broken { seq: self.next.seq, flaw });
        if row.seq != self.next.seq {
            return broken(Flaw::Gap { found: row.seq });
        }
        if row.epoch < self.next.epoch {
            return broken(Flaw::EpochBack);
        }
        if row.prev_hash != self.next.prev_hash {
            return broken(Flaw::PrevHash);
        }
        if row.hash != row_hash(self.tenant, self.session, row) {
            return broken(Flaw::Hash);
        }
        if let Some(flaw) = against_header(row) {
            return broken(flaw);
        }
        self.next = Position::after(row);
        Ok(())
    }

    /// How many rows were checked.
    #[must_use]
    pub const fn checked(&self) -> u64 {
        self.next.seq.saturating_sub(1)
    }

    /// Checks that the log ends where the head row says.
    pub fn finish(self, head: &Head) -> Result<(), Broken> {
        let last = self.checked();
        if last < head.seq {
            return Err(Broken { seq: self.next.seq, flaw: Flaw::Truncated });
        }
        if last > head.seq {
            return Err(Broken { seq: head.seq.saturating_add(1), flaw: Flaw::BeyondHead });
        }
        if self.next.prev_hash != head.hash {
            return Err(Broken { seq: last, flaw: Flaw::HeadHash });
        }
        Ok(())
    }
}

/// Checks a whole log against its head row. Names the first bad seq.
pub fn check(tenant: &TenantId, session: SessionId, rows: &[Row], head: &Head) -> Result<(), Broken> {
    let mut checker = Checker::new(tenant, session);
    for row in rows {
        checker.row(row)?;
    }
    checker.finish(head)
}

fn against_header(row: &Row) -> Option<Flaw> {
    let Ok(header) = Header::read(&row.header) else {
        return Some(Flaw::Header);
    };
    let columns = [
        ("kind", header.kind == row.kind),
        ("run", header.run == row.run),
        ("step", header.step == row.step),
        ("call", header.call == row.call),
        ("marks", header.marks == row.marks),
        ("input_id", header.input_id == row.input_id),
    ];
    if let Some((column, _)) = columns.into_iter().find(|(_, same)| !same) {
        return Some(Flaw::Column { column });
    }
    let payload_fits = match &header.payload {
        Some(meta) => meta.size == row.payload.len() as u64 && meta.digest == Sha256Digest::of(&row.payload),
        None => row.payload.is_empty(),
    };
    (!payload_fits).then_some(Flaw::Payload)
}
