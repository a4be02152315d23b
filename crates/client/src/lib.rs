//! Rust client of Toolgate.
//!
//! [`Client`] speaks REST: start sessions, say more, read events, decide approvals, verify logs, put bundles.
//! [`Executor`] holds the channel: it is offered the calls that Toolgate has approved, runs them through [`Handler`]s, reports what
//! became of them, and picks everything up again after a lost connection.
//!
//! Both decide nothing: what may run is Toolgate's decision, and what this crate reports is this machine's claim. It
//! knows the server only by its documents (`openapi.yaml`, `schemas/channel.schema.json`) and shares no type with it.

mod client;
mod error;
mod executor;
mod frame;
mod model;
mod random;

pub use client::Client;
pub use error::{ApiFailure, ClientError};
pub use executor::{Answer, Call, CallFailure, EndReason, Executor, ExecutorOptions, Handler, Notice, handler};
pub use frame::{ApprovedToolCall, ErrorFrame, FinalOutput, StreamEvent};
pub use model::{
    Approval, BundleInfo, Decision, Event, EventPage, Grant, Page, Run, Session, SessionRequest, Verification, Waiting,
};
