//! Cutting lists into pages, the same for every backend.

use crate::event_log::MAX_PAGE;
use crate::session::Page;

/// The page size asked for, cut to what a page may hold.
pub(crate) fn page_limit(limit: u32) -> u32 {
    limit.clamp(1, MAX_PAGE)
}

/// A page size as a count of items.
pub(crate) fn page_size(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Cuts a list that was read with at least one item too many where there is one, and says where the next page starts.
pub(crate) fn page<T, C>(mut items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> C) -> Page<T, C> {
    let more = items.len() > page_size(limit);
    items.truncate(page_size(limit));
    let next = if more { items.last().map(cursor) } else { None };
    Page { items, next }
}
