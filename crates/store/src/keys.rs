//! Keys of content: the master key wraps session and call keys, which seal content. What is not here: where the master
//! key comes from (the server's settings), and where wrapped keys are stored (the backends).

use crate::name::KeyId;

/// A content key as it is stored: wrapped by the master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// Its name in the session.
    pub id: KeyId,
    /// Nonce and ciphertext.
    pub wrapped: Vec<u8>,
}
