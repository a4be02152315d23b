//! The HTTP side over the in-memory store and a scripted model: requests go through the whole router, without sockets
//! except where the accept loop itself is meant.

mod approvals;
mod auth;
mod bundles;
mod deltas;
mod document;
mod events;
mod frame;
mod idempotency;
mod keys;
mod sessions;
mod world;
