//! Which code each failure of sessions and store has. What is not here: the codes (`error`).

use toolgate_core::bundle::BundleFault;
use toolgate_core::reason::Refusal;
use toolgate_store::StoreError;

use super::{ApiError, ErrorCode};
use crate::failure::Failure;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::new(ErrorCode::Refused(refusal.code), refusal.detail)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let failed = |code, detail: &str| Self::new(code, detail);
        match &error {
            StoreError::NoSuchSession => Self::not_found(),
            StoreError::Unavailable(_) => {
                failed(ErrorCode::StoreUnavailable, "the database did not answer; send the same request again")
                    .because(error)
            }
            StoreError::StorageFull(_) => {
                failed(ErrorCode::StorageFull, "nothing can be written until there is space").because(error)
            }
            StoreError::TooLarge { what, size, limit } => {
                let detail = format!("{what} has {size} bytes or items, over the limit of {limit}");
                Self::new(ErrorCode::PayloadTooLarge, detail)
            }
            _ => failed(ErrorCode::Internal, "the operator has been told").because(error),
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoSuchSession => Self::not_found(),
            Failure::NoBundle => Self::new(ErrorCode::NoBundle, "put a bundle before starting sessions"),
            Failure::Refused(refusal) => refusal.into(),
            Failure::AliasTaken { session } => {
                let detail = format!("the id names `{session}`, which was created with another body");
                Self::new(ErrorCode::AliasConflict, detail)
            }
            Failure::IdempotencyReused => {
                Self::new(ErrorCode::IdempotencyKeyReused, "draw a fresh key for every new request")
            }
            Failure::IdempotencyInProgress => {
                Self::new(ErrorCode::IdempotencyInProgress, "wait and send the same request again")
            }
            Failure::Busy => Self::new(ErrorCode::Busy, "the session or server cannot take more at the moment"),
            Failure::OwnedElsewhere => {
                Self::new(ErrorCode::OwnedElsewhere, "the session runs on another node; try again")
            }
            Failure::LogBroken { seq, detail } => {
                Self::new(ErrorCode::LogBroken, format!("the log does not check at sequence {seq}")).because(detail)
            }
            Failure::Erased => Self::new(ErrorCode::Erased, "the session's content was erased"),
            Failure::Quarantined => {
                Self::new(ErrorCode::Quarantined, "the session failed repeatedly; an operator must look at it")
            }
            Failure::BundleBroken(faults) => {
                let causes: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Self::new(ErrorCode::BundleBroken, "the bundle that the session pinned does not load")
                    .because(causes.join("; "))
            }
            Failure::Store(error) => error.into(),
            Failure::Repeated { seq } => {
                let detail = format!("the input was recorded before, at sequence {seq}");
                Self::new(ErrorCode::Internal, "the operator has been told").because(detail)
            }
            Failure::Internal(detail) => Self::new(ErrorCode::Internal, "the operator has been told").because(detail),
        }
    }
}

impl From<Vec<BundleFault>> for ApiError {
    fn from(faults: Vec<BundleFault>) -> Self {
        // The reader's own fault means that there was no JSON to judge.
        if let [BundleFault { rule: "json", detail, .. }] = faults.as_slice() {
            return Self::new(ErrorCode::Malformed, detail.clone());
        }
        let detail = match faults.as_slice() {
            [only] => only.to_string(),
            many => format!("{} faults; `errors` lists them all", many.len()),
        };
        faults.into_iter().fold(Self::new(ErrorCode::BundleInvalid, detail), |error, fault| {
            error.at(fault.path, fault.rule, fault.detail)
        })
    }
}
