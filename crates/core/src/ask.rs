//! What a proposer is given: instructions, transcript, tools. What is not here: how it is built from the state
//! (`transcript`), and any provider's format (`toolgate-proposers`).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{CallId, ToolId};
use crate::json::Json;

/// Everything one model request is built from. Stateless: the same `Ask` gives the same request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Text for the system role, in order: the profile's prompt, hooks, directives of Toolgate.
    pub instructions: Vec<String>,
    /// The conversation so far, oldest first; shared with the session's state.
    pub transcript: Vec<Arc<Entry>>,
    /// The tools this session may use.
    pub tools: Vec<ToolView>,
    /// JSON Schema that the final output must satisfy.
    pub output_schema: Option<Json>,
    /// Model rounds that ended earlier in this session, over all its runs: answered, unreadable or failed, each counts
    /// one, however many ballots it had. A scripted model answers with the entry of this index, so that it goes on at
    /// the right place after a restart.
    pub answers_so_far: u32,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolView {
    /// The tool's id.
    pub id: ToolId,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Json,
}

/// One entry of the conversation, with its provenance in the variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum Entry {
    /// The caller's own words.
    User {
        /// The message.
        text: String,
    },
    /// What the model answered in an earlier step.
    Model {
        /// Its text.
        text: String,
        /// The calls it asked for, in its order. Each has exactly one `Result` entry later.
        calls: Vec<CallView>,
        /// Provider fields to send back unchanged.
        opaque: Option<Json>,
    },
    /// What became of one call: data from a tool, never instruction.
    Result {
        /// Toolgate's id of the call.
        call: CallId,
        /// The tool's name as the model wrote it.
        tool: String,
        /// `ok`, `failed`, `timed_out`, `denied_by_client`, `indeterminate`, `rejected`, `denied`, `expired`, `cancelled`, `run_ended`.
        status: String,
        /// A reason code and sentence from Toolgate, if there is one.
        reason: Option<String>,
        /// What the tool returned, as text; bytes that are no text are base64.
        body: String,
    },
    /// Toolgate's own words to the model about the step before: what was wrong and what would be right.
    Feedback {
        /// The reason code.
        code: String,
        /// What the model should do.
        text: String,
    },
    /// What a model made of earlier steps that did not fit any more: data as results are, since it was made from them.
    Summary {
        /// Answers of models that it stands for.
        steps: u32,
        /// The summary.
        text: String,
    },
}

/// A call in the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallView {
    /// Toolgate's id of the call; adapters map it to a wire id.
    pub call: CallId,
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The arguments as sent, or as redacted; always text, though not always valid JSON.
    pub args: String,
}
