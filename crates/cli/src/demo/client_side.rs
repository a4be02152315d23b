//! The people and programs on the user's side of the demo: a client that executes approved calls, a human who approves.

use secrecy::SecretString;
use serde_json::json;
use toolgate_client::{Answer, Client, Decision, Executor, ExecutorOptions, handler};
use toolgate_core::id::{ActorId, TenantId};
use toolgate_server::auth::{KeyRequest, mint};
use toolgate_server::caller::Scope;
use toolgate_server::node::{FIRST_TENANT, Node};

use crate::failure::CommandError;
use crate::output;

/// Connects a client over the WebSocket that "executes" what is approved.
pub(super) fn connect(url: &str, key: &str, session: &str) -> Result<Executor, CommandError> {
    let options = ExecutorOptions::new(Client::new(url, key)?)
        .capability("terminal")
        .capability("file_edit")
        .session(session, 0)
        .tool("edit_file", handler(|call| async move { Ok(Answer::Json(json!({"written": call.args.get("path")}))) }))
        .tool("run_tests", handler(|_| async { Ok(Answer::Json(json!({"exit_code": 0, "passed": 12}))) }));
    Ok(Executor::start(options)?)
}

/// A key of somebody else than the one who starts the sessions: who asks may not approve.
pub(super) async fn approver_key(node: &Node) -> Result<SecretString, CommandError> {
    let app = node.app();
    let request = KeyRequest {
        tenant: TenantId::new(FIRST_TENANT)?,
        actor: ActorId::new("boss")?,
        scopes: [Scope::ApprovalsWrite, Scope::SessionsRead].into(),
        ceiling: None,
        label: "the approver of the demo".to_owned(),
        expires_at: None,
    };
    let (row, printed) = mint(app.auth().pepper(), request, app.clock().now())?;
    app.store().api_key_put(&row).await?;
    Ok(printed)
}

/// Looks at what waits in a session and approves exactly what is shown.
pub(super) async fn approve(client: &Client, session: &str) -> Result<(), CommandError> {
    let waiting = client.approvals(Some("pending"), None).await?;
    for approval in waiting.items.iter().filter(|approval| approval.session_id == session) {
        let shown = client.approval(&approval.id).await?;
        let Some(digest) = shown.digest else { continue };
        let args = shown.args.map(|args| args.to_string()).unwrap_or_default();
        output::line(&format!("       (a human looks at {} {args} and approves)", shown.tool.unwrap_or_default()));
        client.decide(&approval.id, &Decision::Approve { digest, grant: None }).await?;
    }
    Ok(())
}
