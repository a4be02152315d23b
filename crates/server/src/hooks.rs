//! Admission hooks and observers: one `POST` a question or fact to an operator's own endpoint, bounded in time and size, to a checked address.
//! Whatever goes wrong is no usable answer, which denies. What is not here: what an answer leads to (the core), the forms of
//! question and answer (`wire::hook`).

use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use tokio::time::{Instant, timeout_at};
use toolgate_core::bundle::HookDef;
use toolgate_core::id::{ActorId, CallId, ProfileName, SessionId, Sha256Digest, TenantId, ToolId};
use toolgate_core::input::AdmissionVerdict;
use toolgate_core::json::Json;
use toolgate_core::tool::ToolDef;
use toolgate_proposers::SecretSource;
use url::Url;

use crate::tools::AddressPolicy;
use crate::tools::http::{ToolSetupError, bearer, bearer_secret, checked_client, sending_failed};
use crate::wire::hook::{AdmissionReview, verdict};

/// Bytes of an answer, at most.
const MAX_ANSWER: usize = 1_048_576;

/// A question to a hook.
#[derive(Debug, Clone)]
pub struct HookQuestion {
    /// The hook.
    pub hook: HookDef,
    /// Owner of the session.
    pub tenant: TenantId,
    /// Who started it.
    pub actor: ActorId,
    /// The session.
    pub session: SessionId,
    /// The run.
    pub run: u32,
    /// The profile.
    pub profile: ProfileName,
    /// The pinned bundle.
    pub bundle: Sha256Digest,
    /// The call.
    pub call: CallId,
    /// Grows when the question is asked again.
    pub attempt: u32,
    /// The tool.
    pub tool: ToolId,
    /// Hash of its contract.
    pub version: Sha256Digest,
    /// Its contract.
    pub contract: ToolDef,
    /// A human is asked once every hook has let the call pass.
    pub escalated: bool,
    /// The canonical arguments.
    pub args: Json,
}

/// Where an operator's endpoint lives.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint<'a> {
    /// Its URL.
    pub url: &'a str,
    /// The variable whose value is its bearer token.
    pub bearer_env: Option<&'a str>,
}

/// Asks admission hooks and tells observers. One call is one request: an implementation never tries again by itself.
#[async_trait]
pub trait HookCaller: Send + Sync + Debug {
    /// Asks a hook. Whatever goes wrong is [`AdmissionVerdict::Failed`].
    async fn ask(&self, question: &HookQuestion) -> AdmissionVerdict;

    /// Tells an observer a fact under its idempotency key. Fails unless it answers with a success in time; the text says
    /// why, without secrets.
    async fn tell(&self, to: &Endpoint<'_>, key: &str, body: Vec<u8>, timeout: Duration) -> Result<(), String>;
}

/// Hooks over HTTP.
#[derive(Clone)]
pub struct HttpHooks {
    client: reqwest::Client,
    policy: AddressPolicy,
    secrets: Arc<dyn SecretSource>,
}

impl fmt::Debug for HttpHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpHooks").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl HttpHooks {
    /// Makes a caller under an address policy.
    pub fn new(policy: AddressPolicy, secrets: Arc<dyn SecretSource>) -> Result<Self, ToolSetupError> {
        Ok(Self { client: checked_client(policy)?, policy, secrets })
    }

    /// Posts a body and gives status and bytes of the answer; one that is no success is a failure.
    async fn post(
        &self,
        to: &Endpoint<'_>,
        key: &str,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<(u16, Vec<u8>), String> {
        let url = Url::parse(to.url).map_err(|error| format!("its URL cannot be read: {error}"))?;
        self.policy.check(&url).map_err(|error| error.to_string())?;
        let mut request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            .header("idempotency-key", key)
            .body(body);
        let secret = bearer_secret(&*self.secrets, to.bearer_env)?;
        if let Some(secret) = &secret {
            let value =
                bearer(secret).ok_or_else(|| "its secret has characters that no header may carry".to_owned())?;
            request = request.header(AUTHORIZATION, value);
        }
        let late = || "it did not answer in time".to_owned();
        let failed = |error: reqwest::Error| sending_failed(error, secret.as_ref());
        let mut response = timeout_at(until, request.send()).await.map_err(|_| late())?.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("it answered {}", status.as_u16()));
        }
        let mut answer = Vec::new();
        while let Some(chunk) = timeout_at(until, response.chunk()).await.map_err(|_| late())?.map_err(failed)? {
            if answer.len().saturating_add(chunk.len()) > MAX_ANSWER {
                return Err(format!("its answer has more than {MAX_ANSWER} bytes"));
            }
            answer.extend_from_slice(&chunk);
        }
        Ok((status.as_u16(), answer))
    }
}

#[async_trait]
impl HookCaller for HttpHooks {
    async fn ask(&self, question: &HookQuestion) -> AdmissionVerdict {
        let until = Instant::now() + Duration::from_millis(question.hook.timeout_ms);
        let to = Endpoint { url: &question.hook.url, bearer_env: question.hook.bearer_env.as_deref() };
        let key = format!("{}-{}-{}", question.call, question.hook.name, question.attempt);
        let answer = match serde_json::to_vec(&AdmissionReview::from(question)) {
            Ok(body) => self.post(&to, &key, body, until).await,
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok((200, answer)) => verdict(&answer),
            // A hook that has only taken the question has not answered it.
            Ok((status, _)) => AdmissionVerdict::Failed { detail: format!("it answered {status}") },
            Err(detail) => AdmissionVerdict::Failed { detail: detail.chars().take(400).collect() },
        }
    }

    async fn tell(&self, to: &Endpoint<'_>, key: &str, body: Vec<u8>, timeout: Duration) -> Result<(), String> {
        self.post(to, key, body, Instant::now() + timeout).await.map(|_| ())
    }
}
