//! Pages of lists, and times in queries. What is not here: how a cursor is made (`http::cursor`).

use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use toolgate_core::time::Timestamp;
use utoipa::ToSchema;

/// Items of a page when the caller names no number.
pub const DEFAULT_LIMIT: u32 = 50;
/// Items of a page, at most.
pub const MAX_LIMIT: u32 = 200;

/// One page of a list, newest first.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Give it as `cursor` to get the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// The size of a page: 1 to 200, cut to that range.
#[must_use]
pub fn page_limit(asked: Option<u32>) -> u32 {
    asked.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT)
}

/// A time as callers write it: RFC 3339 with any offset; kept to the microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Moment(pub Timestamp);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = OffsetDateTime::parse(&text, &Rfc3339)
            .map_err(|_| serde::de::Error::custom("must be a time like `2026-11-29T08:00:00.000Z`"))?;
        let micros = i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000)).map_err(serde::de::Error::custom)?;
        Ok(Self(Timestamp(micros)))
    }
}
