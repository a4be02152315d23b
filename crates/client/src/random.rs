//! Unpredictable enough numbers for ids and waiting times. What is not here: secrets, which this crate never makes.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A number that differs from call to call and from process to process.
pub(crate) fn number() -> u64 {
    // Each `RandomState` has keys of its own, seeded by the operating system.
    RandomState::new().build_hasher().finish()
}

/// 32 hex digits.
pub(crate) fn hex() -> String {
    format!("{:016x}{:016x}", number(), number())
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_differ() {
        let drawn: std::collections::BTreeSet<String> = (0..100).map(|_| super::hex()).collect();
        assert_eq!(drawn.len(), 100);
        assert!(drawn.iter().all(|hex| hex.len() == 32));
    }
}
