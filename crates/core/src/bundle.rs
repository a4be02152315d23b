//! The versioned configuration of a tenant.
pub mod model;
