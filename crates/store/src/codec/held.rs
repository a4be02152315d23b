//! The keys that a codec holds: the session's own and those of its open calls. Mostly it is one, in every session in memory, so
//! that they stand in a sorted list, which takes a tenth of a map with room for eleven. What is not here: the keys
//! themselves (`keys`).

use crate::keys::ContentKey;
use crate::name::KeyId;

/// Keys by name.
#[derive(Debug, Default)]
pub(super) struct HeldKeys(Vec<(KeyId, ContentKey)>);

impl HeldKeys {
    pub(super) fn get(&self, id: &KeyId) -> Option<&ContentKey> {
        let place = self.place(id).ok()?;
        self.0.get(place).map(|(_, key)| key)
    }

    pub(super) fn contains(&self, id: &KeyId) -> bool {
        self.place(id).is_ok()
    }

    /// Adds a key, in the place of one of the same name.
    pub(super) fn insert(&mut self, id: KeyId, key: ContentKey) {
        match self.place(&id) {
            Ok(place) => {
                if let Some(known) = self.0.get_mut(place) {
                    known.1 = key;
                }
            }
            Err(place) => {
                // One by one: a session in memory has no room that it does not need.
                self.0.reserve_exact(1);
                self.0.insert(place, (id, key));
            }
        }
    }

    pub(super) fn remove(&mut self, id: &KeyId) {
        if let Ok(place) = self.place(id) {
            self.0.remove(place);
        }
    }

    /// Their names, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &KeyId> {
        self.0.iter().map(|(id, _)| id)
    }

    /// Whether there are keys beside the session's own.
    pub(super) fn holds_more_than_the_sessions(&self) -> bool {
        self.0.iter().any(|(id, _)| *id != KeyId::session())
    }

    fn place(&self, id: &KeyId) -> Result<usize, usize> {
        self.0.binary_search_by(|(held, _)| held.cmp(id))
    }
}

impl FromIterator<(KeyId, ContentKey)> for HeldKeys {
    fn from_iter<T: IntoIterator<Item = (KeyId, ContentKey)>>(keys: T) -> Self {
        let mut held = Self::default();
        for (id, key) in keys {
            held.insert(id, key);
        }
        held
    }
}
