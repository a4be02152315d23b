//! Numbers that follow from the seed of a run and a name, so that each session, question and call has its own whatever
//! order they come in. What is not here: what is drawn.

use fastrand::Rng;

/// A generator for one purpose of a run.
#[must_use]
pub fn dice(seed: u64, name: &str) -> Rng {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    Rng::with_seed(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, fold))
}
