//! Holds the executor's place of one session for one connection and passes its offers on. What is not here: which calls
//! are open (the core), reports about them (`handle`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use toolgate_core::Order;
use toolgate_core::bundle::Bundle;
use toolgate_core::id::{Capability, SessionId};
use toolgate_core::reason::RefusalCode;

use super::connection::Connection;
use super::outbox::Ended;
use crate::error::{ApiError, ErrorCode};
use crate::sessions::{AttachRefused, Attachment};
use crate::wire::frame::{ApprovedToolCall, ServerFrame};
use crate::wire::{RawJson, time_text};

/// First wait before the place is taken again; doubles up to the most.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest wait before the place is taken again.
const RETRY_MOST: Duration = Duration::from_secs(5);

/// Executes until the connection ends, the place is taken by another instance, or the session cannot be executed for.
pub(super) async fn execute(
    connection: Arc<Connection>,
    session: SessionId,
    capabilities: BTreeSet<Capability>,
) -> Result<(), Ended> {
    let mut retry = RETRY_FIRST;
    loop {
        let place = connection.app.sessions().attach(
            &connection.caller,
            session,
            connection.client.clone(),
            capabilities.clone(),
        );
        match place.await {
            Ok(attachment) => {
                if pass_on(&connection, session, attachment).await? {
                    retry = RETRY_FIRST;
                }
            }
            Err(AttachRefused::ExecutorTaken) => {
                // Not tried again: a lost connection must find its place free when it comes back.
                let code = ErrorCode::Refused(RefusalCode::ExecutorTaken);
                let error = ApiError::new(code, "another client executes for this session; this one watches");
                return connection.refuse(&error, Some(session.to_string())).await;
            }
            Err(AttachRefused::Failed(failure)) => {
                let error = ApiError::from(failure);
                if error.code() == ErrorCode::Refused(RefusalCode::SessionClosed) {
                    return Ok(());
                }
                if error.code().retry_after_s().is_none() {
                    return connection.refuse(&error, Some(session.to_string())).await;
                }
            }
        }
        // The session left memory, or failed and is loaded again. A newer connection of this client is no reason: it ends
        // this connection before it takes the place.
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MOST);
    }
}

/// Passes offers on until there are no more; whether there were any.
async fn pass_on(connection: &Connection, session: SessionId, mut attachment: Attachment) -> Result<bool, Ended> {
    let mut any = false;
    let mut bundle: Option<Arc<Bundle>> = None;
    while let Some(order) = attachment.offers.recv().await {
        any = true;
        if bundle.is_none() {
            // Only for the limit of the output, which the client can do without.
            let snapshot = connection.app.sessions().snapshot(&connection.caller.tenant, session).await;
            bundle = snapshot.ok().map(|snapshot| snapshot.bundle);
        }
        connection.offered().insert(order.call.clone());
        let frame = offer(connection, session, &order, bundle.as_deref());
        connection.outbox.control(&ServerFrame::ApprovedToolCall(frame)).await?;
    }
    drop(attachment.guard);
    Ok(any)
}

fn offer(connection: &Connection, session: SessionId, order: &Order, bundle: Option<&Bundle>) -> ApprovedToolCall {
    let left = order.deadline_at.as_micros().saturating_sub(connection.app.clock().now().as_micros());
    ApprovedToolCall {
        session_id: session.to_string(),
        call_id: order.call.to_string(),
        attempt: order.attempt,
        fence: order.fence,
        tool: order.tool.to_string(),
        args: RawJson::from(&order.args),
        args_hash: order.args_hash.to_string(),
        deadline_at: time_text(order.deadline_at),
        expires_in_ms: u64::try_from(left / 1_000).unwrap_or(0),
        max_output_bytes: bundle.and_then(|bundle| bundle.tool(&order.tool)).map(|tool| tool.def.max_output_bytes),
    }
}
