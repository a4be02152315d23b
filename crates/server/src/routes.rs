//! What each operation does: one file per resource, thin. What is not here: the list of routes (`router`), JSON forms
//! (`wire`), and everything that is the same for all (`http`).

pub mod api_keys;
pub mod approvals;
pub mod blobs;
pub mod bundles;
pub mod calls;
pub mod events;
pub mod health;
pub mod security;
pub mod sessions;
mod stream;
pub mod usage;
pub mod verify;
