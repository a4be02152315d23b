//! Frames that say something to a session: start, message, approval, cancel. The event that records one is its answer.
//! What is not here: reports about calls (`execution`).

use std::sync::Arc;

use axum::http::HeaderMap;
use toolgate_core::id::{InputId, SessionId};
use toolgate_core::input::{self, ApprovalAnswer, Input, Stop};
use toolgate_core::reason::RefusalCode;
use toolgate_store::ApprovalStatus;

use super::{Driver, require, within};
use crate::caller::Scope;
use crate::channel::follow::{Followed, stream_event};
use crate::error::{ApiError, ErrorCode};
use crate::sessions::Opened;
use crate::wire::approval::{DecideApproval, GrantRequest, Verdict};
use crate::wire::frame::{Approval, ApprovalVerdict, Cancel, Message, Request, SessionCursor};
use crate::wire::session::{LimitsAsked, StartSession, checked_text};

impl Driver {
    pub(super) async fn request(&mut self, frame: Request) -> Result<(), ApiError> {
        let connection = Arc::clone(&self.connection);
        require(&connection, Scope::SessionsWrite)?;
        let capabilities = frame.capabilities.unwrap_or_else(|| connection.capabilities.clone());
        let limits = frame.limits;
        let start = StartSession {
            id: frame.id,
            profile: frame.profile,
            label: frame.label,
            prompt: frame.prompt,
            capabilities: capabilities.clone(),
            limits: LimitsAsked {
                max_steps: limits.max_steps,
                max_tool_calls: limits.max_tool_calls,
                max_model_calls: limits.max_model_calls,
                deadline_ms: limits.deadline_ms,
            },
            control: frame.control,
            dry_run: frame.dry_run,
            output_schema: frame.output_schema,
            metadata: frame.metadata,
        };
        let request = start.into_request(&HeaderMap::new(), frame.fingerprint)?;
        let (Opened::Created(snapshot) | Opened::Existing(snapshot)) =
            connection.app.sessions().open(&connection.caller, request).await?;
        let session = snapshot.state.id;
        if self.followed.contains(&session) {
            return self.repeat(session, 1, frame.frame_id).await;
        }
        let followed = self.find(&SessionCursor { id: session, last_seq: 0 }, 0).await?;
        self.begin(Followed { started_by: frame.frame_id, ..followed }, capabilities);
        Ok(())
    }

    pub(super) async fn message(&self, frame: Message) -> Result<(), ApiError> {
        require(&self.connection, Scope::SessionsWrite)?;
        checked_text("/text", &frame.text)?;
        let input = Input::Message(input::Message { by: self.connection.caller.actor.clone(), text: frame.text });
        self.submit_answered(frame.session_id, frame.frame_id, input).await
    }

    pub(super) async fn cancel(&self, frame: Cancel) -> Result<(), ApiError> {
        require(&self.connection, Scope::SessionsWrite)?;
        within("/reason", frame.reason.as_deref())?;
        let input = Input::Cancel(Stop { by: self.connection.caller.actor.clone(), reason: frame.reason });
        self.submit_answered(frame.session_id, frame.frame_id, input).await
    }

    pub(super) async fn approval(&self, frame: Approval) -> Result<(), ApiError> {
        let connection = &self.connection;
        require(connection, Scope::ApprovalsWrite)?;
        let verdict = match frame.decision {
            ApprovalVerdict::Approve => Verdict::Approve,
            ApprovalVerdict::Deny => Verdict::Deny,
            ApprovalVerdict::Edit => Verdict::Edit,
            ApprovalVerdict::Revoke => Verdict::Revoke,
        };
        let decision = DecideApproval {
            decision: verdict,
            digest: frame.digest,
            bundle: frame.bundle,
            grant: frame.grant.map(|grant| GrantRequest { open: grant.open, ttl_ms: grant.ttl_ms }),
            message: frame.message,
            arguments: frame.arguments,
        }
        .into_decision()?;
        let approval = frame.approval_id;
        let by = connection.caller.actor.clone();
        let answer =
            ApprovalAnswer { approval: approval.clone(), by, digest: frame.digest, bundle: frame.bundle, decision };
        let done = self.submit_answered(frame.session_id, frame.frame_id, Input::Approval(answer)).await;
        let unknown = ErrorCode::Refused(RefusalCode::UnknownApproval);
        match done {
            // Decided and forgotten by the session, perhaps; then the first answer is the answer.
            Err(error) if error.code() == unknown => {
                let row = connection.app.store().approval(&connection.caller.tenant, &approval).await?;
                Err(row.filter(|row| row.session == frame.session_id).map_or(error, |row| settled(row.status)))
            }
            other => other,
        }
    }

    /// Submits an input; the event that records it is the answer.
    async fn submit_answered(
        &self,
        session: SessionId,
        frame_id: Option<String>,
        input: Input,
    ) -> Result<(), ApiError> {
        let id = match &frame_id {
            None => None,
            Some(own) => {
                let id = InputId::new(format!("{}{own}", self.connection.input_prefix));
                Some(id.map_err(|_| ApiError::invalid("/frame_id", "1 to 64 visible ASCII characters"))?)
            }
        };
        let taken = self.submit(session, id, input).await?;
        if let Some(seq) = taken.already {
            return self.repeat(session, seq, frame_id).await;
        }
        if let (false, Some(recorded)) = (self.followed.contains(&session), taken.events.first()) {
            // Nobody follows the session here, so the answer goes out by itself. A failure means the connection has ended.
            let _ = self.connection.outbox.bulk(&stream_event(session, recorded, frame_id)).await;
        }
        Ok(())
    }

    /// Answers a repeated frame with the event that recorded it the first time.
    async fn repeat(&self, session: SessionId, seq: u64, frame_id: Option<String>) -> Result<(), ApiError> {
        let connection = &self.connection;
        let tenant = &connection.caller.tenant;
        let there = connection.app.sessions().events(tenant, session, seq.saturating_sub(1), 1).await?;
        if let Some(recorded) = there.first() {
            // A failure means that the connection has ended.
            let _ = connection.outbox.bulk(&stream_event(session, recorded, frame_id)).await;
        }
        Ok(())
    }
}

/// What a second answer to an approval is told.
fn settled(status: ApprovalStatus) -> ApiError {
    match status {
        ApprovalStatus::Expired => {
            ApiError::new(ErrorCode::Refused(RefusalCode::ApprovalExpired), "nobody decided in time")
        }
        ApprovalStatus::Pending
        | ApprovalStatus::Approved
        | ApprovalStatus::Denied
        | ApprovalStatus::Edited
        | ApprovalStatus::Revoked
        | ApprovalStatus::Cancelled => {
            let code = ErrorCode::Refused(RefusalCode::ApprovalClosed);
            ApiError::new(code, format!("the approval is {} already", status.as_str()))
        }
    }
}
