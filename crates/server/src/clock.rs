//! The one place that reads the clock and draws ids. Tests put a fixed clock here.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use toolgate_core::id::{InputId, InvalidName, SessionId};
use toolgate_core::time::Timestamp;

/// Reads the time of day.
pub trait Clock: Send + Sync + Debug {
    /// Microseconds since 1970.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// A fresh session id: a UUIDv7, so that keys of one tenant grow with time.
#[must_use]
pub fn new_session_id() -> SessionId {
    SessionId::from_uuid(uuid::Uuid::now_v7())
}

/// A fresh name for an input whose sender gave none.
pub(crate) fn new_input_id() -> Result<InputId, InvalidName> {
    InputId::new(format!("inp_{}", uuid::Uuid::now_v7().simple()))
}
