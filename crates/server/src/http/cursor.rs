//! Cursors of lists: opaque, bound to tenant, list and filters by a mark that only this cluster can make. What is not
//! here: what the position of each list is (its route).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;
use toolgate_core::id::{Sha256Digest, TenantId};

use crate::auth::Pepper;
use crate::error::{ApiError, ErrorCode};

const VERSION: u8 = 1;
const MARK_BYTES: usize = 16;
const FILTER_BYTES: usize = 8;
/// Characters of a cursor, at most; longer ones were not made here.
const MAX_TEXT: usize = 1_024;

/// What the marks are made with.
#[derive(Debug, Clone)]
pub struct CursorKey(Pepper);

impl CursorKey {
    /// Marks made with this secret.
    #[must_use]
    pub const fn new(pepper: Pepper) -> Self {
        Self(pepper)
    }

    /// A cursor of `list` under these filters, at this position.
    #[must_use]
    pub fn seal(&self, tenant: &TenantId, list: &str, filters: &impl Serialize, position: &impl Serialize) -> String {
        let position = serde_json::to_vec(position).unwrap_or_default();
        let filters = filter_hash(filters);
        let mark = self.mark(tenant, list, &filters, &position);
        let bytes: Vec<u8> = std::iter::once(VERSION).chain(mark).chain(filters).chain(position).collect();
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a cursor back. Refuses one that was not made here for this tenant and list, or with other filters.
    pub fn open<P: DeserializeOwned>(
        &self,
        tenant: &TenantId,
        list: &str,
        filters: &impl Serialize,
        cursor: &str,
    ) -> Result<P, ApiError> {
        let invalid = || ApiError::new(ErrorCode::CursorInvalid, "take `next_cursor` of the page before, unchanged");
        if cursor.len() > MAX_TEXT {
            return Err(invalid());
        }
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| invalid())?;
        let (version, rest) = bytes.split_first().ok_or_else(invalid)?;
        let (mark, rest) = rest.split_first_chunk::<MARK_BYTES>().ok_or_else(invalid)?;
        let (filters_then, position) = rest.split_first_chunk::<FILTER_BYTES>().ok_or_else(invalid)?;
        let expected = self.mark(tenant, list, filters_then, position);
        if *version != VERSION || !bool::from(mark.ct_eq(&expected)) {
            return Err(invalid());
        }
        if *filters_then != filter_hash(filters) {
            let detail = "the filters must stay the same from page to page";
            return Err(ApiError::new(ErrorCode::CursorMismatch, detail));
        }
        serde_json::from_slice(position).map_err(|_| invalid())
    }

    fn mark(&self, tenant: &TenantId, list: &str, filters: &[u8], position: &[u8]) -> [u8; MARK_BYTES] {
        let parts = [&[VERSION], tenant.as_str().as_bytes(), list.as_bytes(), filters, position];
        let whole = self.0.mark("toolgate.cursor.v1", &parts);
        let mut cut = [0; MARK_BYTES];
        cut.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
        cut
    }
}

fn filter_hash(filters: &impl Serialize) -> [u8; FILTER_BYTES] {
    let whole = Sha256Digest::of(&serde_json::to_vec(filters).unwrap_or_default());
    let mut cut = [0; FILTER_BYTES];
    cut.iter_mut().zip(whole.as_bytes()).for_each(|(to, from)| *to = *from);
    cut
}
