//! The checker can fail: each property is broken in evidence that is otherwise good. The driver itself runs in
//! `scripts/test` and `scripts/show engine-torture`.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail loudly")]

mod broken;
mod good;
mod journal;
