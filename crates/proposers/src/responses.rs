//! OpenAI's Responses interface. Toolgate keeps the conversation itself, so nothing is stored at the provider. What is not
//! here: what an answer amounts to (`judge`), sending (`exchange`).

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;

/// Where items of reasoning are kept that must go back.
const ITEMS: &str = "items";
