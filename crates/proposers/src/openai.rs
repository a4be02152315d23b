//! OpenAI-style chat completions, as OpenAI and many other servers speak them. What is not here: the newer interface
//! (`responses`), what an answer amounts to (`judge`), sending (`exchange`).

pub(crate) mod completion;
mod pieces;
pub(crate) mod request;
pub(crate) mod stream;
