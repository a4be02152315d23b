//! The adapter for OpenAI-style chat endpoints, with native calls or with the text envelope. What is not here: the two
//! pure halves (`request`, `response`), sending (`exchange`).

use async_trait::async_trait;
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::CallForm;
use toolgate_core::proposal::Ballot;

use crate::envelope;
use crate::exchange::Exchange;
use crate::proposer::{Proposer, Seat};
use crate::quote;

mod args;
mod call_text;
pub(crate) mod completion;
mod failure;
mod names;
pub mod request;
pub mod response;

pub(crate) use args::read as read_args;
pub use completion::Reply;

/// A model behind `POST {base_url}/chat/completions`.
#[derive(Debug)]
pub(crate) struct ChatProposer {
    exchange: Exchange,
    salt: [u8; 32],
}

impl ChatProposer {
    pub(crate) const fn new(exchange: Exchange, salt: [u8; 32]) -> Self {
        Self { exchange, salt }
    }
}

#[async_trait]
impl Proposer for ChatProposer {
    async fn propose(&self, ask: &Ask, seat: Seat) -> Ballot {
        let def = self.exchange.def();
        let body = match def.calls {
            CallForm::Native => request::encode(ask, def),
            CallForm::Envelope => envelope::encode(ask, def, &self.salt),
        };
        tracing::debug!(model = def.model, seat.step, seat.ballot, seat.attempt, "asking a model");
        match self.exchange.run(&body).await {
            Err(failure) => quote::bare(quote::failed(failure.reason, &failure.detail)),
            Ok(received) => match def.calls {
                CallForm::Native => response::decode(received.reply(), ask, def),
                CallForm::Envelope => envelope::decode(received.reply(), def),
            },
        }
    }
}
