//! `Idempotency-Key`: claim, work, stored answer. The same request again gets the same answer and has no second effect.
//! What is not here: reading the header (`http::headers`), and how an answer becomes durable with its effect (`sessions`).
//!
//! Scope: tenant, credential, method and route, key. Answers below 500 are kept, except 409 and 429: those say "not
//! now", and must not be repeated when it would be possible. The work runs to its end even if the caller goes away.

use std::future::Future;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolgate_core::id::{InputId, SessionId, Sha256Digest};
use toolgate_store::{Claimed, IdempotencyClaim, IdempotencyKey, IdempotencyRow};
use tracing::Instrument as _;

use crate::app::App;
use crate::caller::Caller;
use crate::crash;
use crate::error::{ApiError, ErrorCode};
use crate::http::headers;
use crate::sessions::Idempotency;

/// Tells whether an answer is a repetition.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Time that a claim outlives the bound of a request: after a crash the key is free again then.
const CLAIM_SLACK: Duration = Duration::from_secs(5);

/// An operation whose answers can be repeated.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Method and route template.
    pub route: &'static str,
    /// Where a created resource is found, up to its id.
    pub location: Option<&'static str>,
}

/// An answer that can be stored: it holds no content that erasure would have to reach.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    body: Vec<u8>,
    stored: bool,
    shown: Option<Vec<u8>>,
}

impl Answer {
    /// An answer that still has to be stored.
    #[must_use]
    pub fn new(status: StatusCode, body: &impl Serialize) -> Self {
        Self { status: status.as_u16(), body: json(body), stored: false, shown: None }
    }

    /// An answer made by the function that was handed over with the effect.
    #[must_use]
    pub fn made((status, body): (u16, Vec<u8>), stored: bool) -> Self {
        Self { status, body, stored, shown: None }
    }

    /// Shows this caller another body than the one that is stored: fresher, or with a secret that is shown once.
    #[must_use]
    pub fn showing(mut self, body: &impl Serialize) -> Self {
        self.shown = Some(json(body));
        self
    }
}

fn json(body: &impl Serialize) -> Vec<u8> {
    // The wire's own types serialize; the fallback cannot be reached.
    serde_json::to_vec(body).unwrap_or_else(|_| b"null".to_vec())
}

/// The claim a piece of work runs under; empty when the request has no key.
#[derive(Debug, Clone)]
pub struct Ticket {
    claim: Option<(IdempotencyKey, Sha256Digest)>,
}

impl Ticket {
    /// What makes the answer durable together with the effect.
    #[must_use]
    pub fn with(&self, status: StatusCode) -> Option<Idempotency> {
        let (key, fingerprint) = self.claim.clone()?;
        Some(Idempotency { key, fingerprint, status: status.as_u16() })
    }

    /// The id of the input: the same for every repetition, so that one after a crash cannot apply twice.
    #[must_use]
    pub fn input_id(&self, session: SessionId) -> Option<InputId> {
        let (key, _) = self.claim.as_ref()?;
        let mut hash = Sha256::new();
        for part in [key.credential.as_str(), key.route.as_str(), key.key.as_str(), &session.to_string()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        InputId::new(format!("idem_{}", hex::encode(hash.finalize()))).ok()
    }
}

/// Does the work once per key.
pub async fn once<W, F>(
    app: &App,
    caller: &Caller,
    operation: Operation,
    headers: &HeaderMap,
    fingerprint: Sha256Digest,
    work: W,
) -> Result<Response, ApiError>
where
    W: FnOnce(Ticket) -> F,
    F: Future<Output = Result<Answer, ApiError>> + Send + 'static,
{
    let Some(key) = headers::idempotency_key(headers)? else {
        let answer = work(Ticket { claim: None }).await?;
        return Ok(respond(operation, answer.status, answer.shown.unwrap_or(answer.body), None));
    };
    let key = IdempotencyKey {
        tenant: caller.tenant.clone(),
        credential: caller.credential.clone(),
        route: operation.route.to_owned(),
        key,
    };
    crash::point("K0");
    if let Some(row) = claim(app, &key, fingerprint).await? {
        return Ok(replay(operation, row));
    }
    let work = work(Ticket { claim: Some((key.clone(), fingerprint)) });
    let finishing = finish(app.clone(), key, fingerprint, work).instrument(tracing::Span::current());
    match tokio::spawn(finishing).await {
        Ok(Ok(Finished::First(answer))) => {
            Ok(respond(operation, answer.status, answer.shown.unwrap_or(answer.body), Some(false)))
        }
        Ok(Ok(Finished::Earlier(row))) => Ok(replay(operation, row)),
        Ok(Err(error)) => {
            let mut response = error.into_response();
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("false"));
            Ok(response)
        }
        Err(error) => Err(ApiError::new(ErrorCode::Internal, "the operator has been told").because(error)),
    }
}

/// Claims the key, or finds the answer that is there.
async fn claim(app: &App, key: &IdempotencyKey, fingerprint: Sha256Digest) -> Result<Option<IdempotencyRow>, ApiError> {
    let now = app.clock().now();
    let held = app.limits().request.saturating_add(CLAIM_SLACK);
    let claim = IdempotencyClaim {
        key: key.clone(),
        fingerprint,
        now,
        claimed_until: now.plus_ms(u64::try_from(held.as_millis()).unwrap_or(u64::MAX)),
    };
    match app.store().idempotency_claim(&claim).await? {
        Claimed::New => Ok(None),
        Claimed::Done(row) => Ok(Some(*row)),
        Claimed::InProgress => {
            let detail = "wait and send the same request again";
            Err(ApiError::new(ErrorCode::IdempotencyInProgress, detail))
        }
        Claimed::OtherBody => {
            let detail = "draw a fresh key for every new request";
            Err(ApiError::new(ErrorCode::IdempotencyKeyReused, detail))
        }
    }
}

enum Finished {
    First(Answer),
    Earlier(IdempotencyRow),
}

/// Does the work, then stores its answer or gives the key back.
async fn finish(
    app: App,
    key: IdempotencyKey,
    fingerprint: Sha256Digest,
    work: impl Future<Output = Result<Answer, ApiError>>,
) -> Result<Finished, ApiError> {
    match work.await {
        Ok(answer) => {
            if !answer.stored {
                store(&app, key, fingerprint, answer.status, answer.body.clone()).await?;
            }
            Ok(Finished::First(answer))
        }
        Err(error) => {
            let code = error.code();
            if matches!(code, ErrorCode::IdempotencyInProgress | ErrorCode::IdempotencyKeyReused) {
                // A twin was faster; its answer is ours if the body is.
                let row = app.store().idempotency_get(&key).await?;
                return match row.filter(|row| row.fingerprint == fingerprint) {
                    Some(row) => Ok(Finished::Earlier(row)),
                    None => Err(error),
                };
            }
            let lasting = code.status() < 500 && !matches!(code.status(), 409 | 429);
            let settled = if lasting {
                store(&app, key, fingerprint, code.status(), json(&error.problem())).await
            } else {
                app.store().idempotency_release(&key).await.map_err(ApiError::from)
            };
            if let Err(unsettled) = settled {
                tracing::warn!(error = %unsettled, "an idempotency key stays claimed until its claim lapses");
            }
            Err(error)
        }
    }
}

async fn store(
    app: &App,
    key: IdempotencyKey,
    fingerprint: Sha256Digest,
    status: u16,
    body: Vec<u8>,
) -> Result<(), ApiError> {
    let ttl = u64::try_from(app.limits().idempotency_ttl.as_millis()).unwrap_or(u64::MAX);
    let expires_at = app.clock().now().plus_ms(ttl);
    let row = IdempotencyRow { key, fingerprint, status, body, sealed_under: None, expires_at };
    app.store().idempotency_put(&row).await?;
    Ok(())
}

fn replay(operation: Operation, row: IdempotencyRow) -> Response {
    respond(operation, row.status, row.body, Some(true))
}

/// The one field of an answer that its `Location` is made from.
#[derive(Deserialize)]
struct Created {
    id: String,
}

fn respond(operation: Operation, status: u16, body: Vec<u8>, replayed: Option<bool>) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let location = operation.location.filter(|_| status == 201).and_then(|prefix| {
        let created: Created = serde_json::from_slice(&body).ok()?;
        HeaderValue::from_str(&format!("{prefix}{}", created.id)).ok()
    });
    let media = if status < 400 { "application/json" } else { "application/problem+json" };
    let mut response = (code, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    if let Some(location) = location {
        headers.insert(header::LOCATION, location);
    }
    if let Some(replayed) = replayed {
        headers.insert(REPLAYED, HeaderValue::from_static(if replayed { "true" } else { "false" }));
    }
    response
}
