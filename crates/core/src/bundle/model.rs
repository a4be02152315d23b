//! How a model is reached: provider kind, address, limits, secret reference. What is not here: the client that
//! talks to it (`toolgate-proposers`).

use serde::{Deserialize, Serialize};

use crate::id::ModelName;

/// One entry of a bundle's `models`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDef {
    /// Which adapter speaks to it.
    pub provider: Provider,
    /// How calls travel: as native tool calls, in a text envelope, or whichever comes.
    #[serde(default)]
    pub calls: CallForm,
    /// Base URL, for example `http://127.0.0.1:8089/v1`; absent for scripted models.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The provider's model id; absent for scripted models.
    #[serde(default)]
    pub model: Option<String>,
    /// Name of the environment variable that holds the API key; absent when none is needed. Begins with
    /// `TOOLGATE_SECRET_`, the names that the operator gives to bundles.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// Sampling temperature in thousandths (700 = 0.7); absent means the provider's default.
    #[serde(default)]
    pub temperature_milli: Option<u32>,
    /// Upper bound of the answer in tokens.
    #[serde(default)]
    pub max_output_tokens: Option<u32>,
    /// The most tokens that the model reads at once; absent means unknown. Bounds what is reserved for a call.
    #[serde(default)]
    pub max_input_tokens: Option<u32>,
    /// How tokens are counted when a conversation is fitted to `max_input_tokens`.
    #[serde(default, skip_serializing_if = "Tokenizer::is_estimate")]
    pub tokenizer: Tokenizer,
    /// What it costs; absent means nothing, as for a model of one's own.
    #[serde(default)]
    pub prices: Option<Prices>,
    /// The field that carries `max_output_tokens`.
    #[serde(default)]
    pub max_tokens_field: MaxTokensField,
    /// Total time for one request in milliseconds, 1 to 600,000.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Further attempts after a transient failure, 0 to 10.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Requests of this model under way at once in one server, 1 to 10,000.
    #[serde(default = "default_concurrency")]
    pub max_concurrency: u32,
    /// Accept listed harmless deviations (each recorded): of the text envelope, calls written as text that name offered
    /// tools, and a `functions.` prefix of tool names. Off by default.
    #[serde(default)]
    pub lenient: bool,
    /// What stands in `content` of an earlier assistant message that has calls and no text.
    #[serde(default)]
    pub call_content: CallContent,
    /// In which form the arguments of earlier calls go back to the provider.
    #[serde(default)]
    pub history_args: HistoryArgs,
    /// Which ids calls carry on the wire.
    #[serde(default)]
    pub wire_ids: WireIds,
    /// Ask for the answer as a stream, so that its pieces can be shown while they come. The whole answer is judged as ever.
    #[serde(default)]
    pub stream: bool,
    /// Whether a streamed chat completion is asked to report its usage; a few servers refuse the field.
    #[serde(default = "yes")]
    pub stream_usage: bool,
    /// Whether the model may ask for several calls at once; absent says nothing to the provider.
    #[serde(default)]
    pub parallel_calls: Option<bool>,
    /// What becomes of reasoning that came with an earlier answer.
    #[serde(default)]
    pub reasoning: Reasoning,
    /// Which header carries the API key; absent means what the provider's own API has.
    #[serde(default)]
    pub auth: Option<Auth>,
    /// Mark tools as strict where their schema satisfies the provider's strict mode at every level.
    #[serde(default)]
    pub strict_tools: bool,
    /// Time until the first byte of an answer in milliseconds, 1 to 600,000; absent means that only `timeout_ms` bounds it.
    #[serde(default)]
    pub first_byte_timeout_ms: Option<u64>,
    /// Time for the connection in milliseconds, 1 to 600,000; absent means ten seconds.
    #[serde(default)]
    pub connect_timeout_ms: Option<u64>,
    /// Longest silence between two pieces of an answer in milliseconds, 1 to 600,000; absent means that only `timeout_ms`
    /// bounds it.
    #[serde(default)]
    pub idle_timeout_ms: Option<u64>,
    /// Least time between the starts of two requests in milliseconds, 0 to 60,000.
    #[serde(default)]
    pub min_interval_ms: u64,
    /// Requests of one tenant under way at once in one server, 1 to 10,000; absent means `max_concurrency`. Tenants that wait
    /// take turns in either case.
    #[serde(default)]
    pub max_concurrency_per_tenant: Option<u32>,
    /// When to stop asking a provider that keeps failing; absent means never.
    #[serde(default)]
    pub breaker: Option<Breaker>,
    /// The model of this bundle that is asked when this one gives no answer after its retries. It has no fallback itself,
    /// and costs no more.
    #[serde(default)]
    pub fallback: Option<ModelName>,
    /// Answers of a scripted model, in order.
    #[serde(default)]
    pub script: Vec<ScriptedAnswer>,
    /// A scripted model repeats its last answer for ever instead of failing when the script runs out.
    #[serde(default)]
    pub repeat_last: bool,
}

const fn default_timeout_ms() -> u64 {
    120_000
}
const fn yes() -> bool {
    true
}
const fn default_retries() -> u32 {
    2
}
const fn default_concurrency() -> u32 {
    64
}

/// What a model costs, in millionths of a dollar; parts of one are rounded up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Per million tokens of the prompt.
    #[serde(default)]
    pub input_microusd_per_million: u64,
    /// Per million tokens of the answer.
    #[serde(default)]
    pub output_microusd_per_million: u64,
    /// Per call.
    #[serde(default)]
    pub call_microusd: u64,
}

/// The adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// `POST {base_url}/chat/completions`, OpenAI style.
    Openai,
    /// `POST {base_url}/responses`, OpenAI's newer interface.
    OpenaiResponses,
    /// `POST {base_url}/messages`, Anthropic style.
    Anthropic,
    /// Answers written in the bundle: for demos, tests and dry runs.
    Scripted,
}

/// How tokens are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tokenizer {
    /// Three bytes are one token.
    #[default]
    Estimate,
    /// The encoding of OpenAI's models since GPT-4o.
    O200kBase,
    /// The encoding of GPT-4 and GPT-3.5.
    Cl100kBase,
}

impl Tokenizer {
    const fn is_estimate(&self) -> bool {
        matches!(self, Self::Estimate)
    }
}

/// How calls travel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallForm {
    /// The provider's own tool calls.
    #[default]
    Native,
    /// A JSON envelope in the text, for endpoints without tool calls.
    Envelope,
    /// Native calls, and an envelope where the endpoint refuses tools. In either case both forms are understood; an answer
    /// that holds both at once runs nothing.
    Auto,
}

/// What becomes of reasoning that came with an earlier answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// It goes back, in the fields it came in, to the provider and model it came from.
    #[default]
    Echo,
    /// It never goes back.
    Drop,
    /// As `echo`, and the Responses interface is asked for it in encrypted form; models without reasoning refuse that.
    Encrypted,
}

/// Which header carries the API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// `api-key: KEY`, as Azure has it.
    ApiKey,
    /// `x-api-key: KEY`, as Anthropic has it.
    XApiKey,
}

/// When to stop asking a provider that keeps failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// Attempts that fail in a row until the provider is left alone, 1 to 1,000.
    pub failures: u32,
    /// How long it is left alone in milliseconds, 1 to 600,000; then one request tries it again.
    pub open_ms: u64,
}

/// Which request field carries the output limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// `max_tokens`.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// What stands in `content` of an earlier assistant message that has calls and no text; providers disagree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallContent {
    /// `null`.
    #[default]
    Null,
    /// The empty string.
    Empty,
    /// No `content` key.
    Omit,
}

/// In which form the arguments of earlier calls go back to the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryArgs {
    /// A string that holds JSON, as OpenAI has it.
    #[default]
    String,
    /// A JSON object, as Ollama's own API has it.
    Object,
}

/// Which ids calls carry on the wire. Toolgate's own ids stay the authority in either case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireIds {
    /// Toolgate's call id.
    #[default]
    Full,
    /// Nine letters and digits, as Mistral demands.
    Nine,
}

/// One answer of a scripted model. Exactly one of the fields is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum ScriptedAnswer {
    /// Ask for these calls.
    Calls(Vec<ScriptedCall>),
    /// Say done with this output (any JSON).
    Done(serde_json::Value),
    /// Answer this raw text through the envelope parser.
    Text(String),
    /// Fail as a provider does.
    Fail(crate::proposal::ProviderFailure),
}

/// One call of a scripted answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool's name, passed on as written.
    pub tool: String,
    /// The arguments.
    #[serde(default)]
    pub args: serde_json::Value,
}
