//! Which builds may run side by side: each node says which form of events and messages it reads and writes, its protocol
//! number. What is not here: the forms themselves (`toolgate-core`, the store's codec).

/// The number of this build. It goes up by one with a release that writes something the one before cannot read.
pub const PROTOCOL: u32 = 1;

/// Whether two builds understand each other: neighbouring numbers do.
#[must_use]
pub const fn are_compatible(one: u32, other: u32) -> bool {
    one.abs_diff(other) <= 1
}

/// The first protocol of the live nodes that this build cannot run beside.
#[must_use]
pub fn incompatible(own: u32, live: impl IntoIterator<Item = u32>) -> Option<u32> {
    live.into_iter().find(|other| !are_compatible(own, *other))
}

/// Whether something new may be written that only nodes of `needed` and later can read: all live nodes are as far.
#[must_use]
pub fn may_write(needed: u32, own: u32, live: impl IntoIterator<Item = u32>) -> bool {
    live.into_iter().fold(own, u32::min) >= needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_run_together_and_others_do_not() {
        assert_eq!(incompatible(3, [2, 3, 4]), None);
        assert_eq!(incompatible(3, []), None);
        assert_eq!(incompatible(3, [3, 1]), Some(1));
        assert_eq!(incompatible(3, [5]), Some(5));
        assert_eq!(incompatible(0, [u32::MAX]), Some(u32::MAX));
    }

    #[test]
    fn new_forms_wait_for_the_last_node() {
        assert!(may_write(4, 4, []));
        assert!(may_write(4, 4, [4, 5]));
        assert!(!may_write(4, 4, [4, 3]));
        assert!(!may_write(4, 3, [4, 4]));
    }
}
