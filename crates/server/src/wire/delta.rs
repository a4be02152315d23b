//! A piece of a model's answer as those see it who asked for pieces: a line of NDJSON, a server-sent event, a frame. What is
//! not here: events, which are recorded (`wire::event`).

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use crate::sessions::{Piece, Shown};

/// A piece of an answer while a model gives it. It is not recorded, may get lost, and nothing is decided on it: what counts
/// is `ballot_received`. Sent to those alone who asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema, JsonSchema)]
pub struct ModelDelta {
    /// The session.
    pub session_id: String,
    /// The run.
    pub run: u32,
    /// The step within the run.
    pub step: u32,
    /// The round within the step, as in `ballot_received`.
    pub round: u32,
    /// The ballot within the round, as in `ballot_received`.
    pub ballot: u32,
    /// The attempt, as in `ballot_received`.
    pub attempt: u32,
    /// How often the provider was asked before in this attempt, in vain: from 0. Pieces of two never belong together.
    pub retry: u32,
    /// Place among the pieces with the same `retry`, from 1. A gap says that pieces were lost.
    pub n: u64,
    /// What it shows.
    #[serde(flatten)]
    pub shown: DeltaView,
}

/// What a piece shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DeltaView {
    /// More of the answer's text.
    Text {
        /// The piece.
        text: String,
    },
    /// A call begins; it is neither complete nor decided.
    Call {
        /// Which call of the answer, from 0.
        index: u64,
        /// The tool's name as the model wrote it.
        name: String,
    },
    /// More of the text of a call's arguments.
    Arguments {
        /// Which call of the answer, from 0.
        index: u64,
        /// The piece.
        text: String,
    },
    /// All pieces with this `retry` are void.
    Discarded,
    /// An answer comes, and nothing of it is shown, since a tool of the bundle redacts arguments.
    Withheld,
}

/// The same as a line or a server-sent event.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type")]
pub enum DeltaLine {
    /// A piece of an answer.
    #[serde(rename = "model_delta")]
    ModelDelta(ModelDelta),
}

impl From<&Piece> for ModelDelta {
    fn from(piece: &Piece) -> Self {
        let number = |index: usize| u64::try_from(index).unwrap_or(u64::MAX);
        Self {
            session_id: piece.session.to_string(),
            run: piece.seat.run,
            step: piece.seat.step,
            round: piece.seat.round,
            ballot: piece.seat.ballot,
            attempt: piece.seat.attempt,
            retry: piece.retry,
            n: piece.n,
            shown: match &piece.shown {
                Shown::Text(text) => DeltaView::Text { text: text.clone() },
                Shown::Call { index, name } => DeltaView::Call { index: number(*index), name: name.clone() },
                Shown::Arguments { index, text } => DeltaView::Arguments { index: number(*index), text: text.clone() },
                Shown::Discarded => DeltaView::Discarded,
                Shown::Withheld => DeltaView::Withheld,
            },
        }
    }
}
