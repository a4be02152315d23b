//! The contract of the store, run over every backend.
