//! The decision core of Toolgate: pure, synchronous, without clock, randomness or I/O.

pub mod ask;
pub mod bundle;
pub mod id;
pub mod json;
pub mod proposal;
pub mod time;
