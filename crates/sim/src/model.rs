//! What models say: calls that fit, calls that do not, nonsense, and claims to be done. What is not here: what becomes of it.

use fastrand::Rng;
use toolgate_core::input::{Input, Seat, SummaryFailure, SummaryWritten};
use toolgate_core::json::Json;
use toolgate_core::proposal::{
    Ballot, BallotVerdict, MalformedReason, Proposal, ProposedArgs, ProposedCall, ProviderFailure, Usage,
};

use crate::bundle::TOOLS;

/// A ballot with this verdict.
pub(crate) fn of(verdict: BallotVerdict) -> Ballot {
    Ballot {
        verdict,
        text: "thinking".to_owned(),
        normalised: Vec::new(),
        opaque: None,
        usage: Usage { input_tokens: Some(100), output_tokens: Some(20) },
        model: None,
        fingerprint: None,
        cut: None,
    }
}

/// What comes of the question for a summary.
pub(crate) fn summary(seat: Seat, result: Result<String, SummaryFailure>) -> Input {
    let usage = Usage { input_tokens: Some(100), output_tokens: Some(20) };
    Input::Summary(Box::new(SummaryWritten { seat, result, usage, model: None }))
}

/// A model's next answer after so many steps. In calm times it comes to an end sooner.
pub(crate) fn ballot(rng: &mut Rng, steps: u32, calm: bool) -> Ballot {
    let done = match (steps, calm) {
        (0, _) => 8,
        (_, false) => 25,
        (_, true) => 55,
    };
    let pick = rng.u32(0..100);
    of(if pick < done {
        Json::parse("\"ready\"")
            .map_or_else(|_| nonsense(), |output| BallotVerdict::Proposal(Proposal::Done { output }))
    } else if pick >= 96 {
        nonsense()
    } else if pick >= 95 {
        BallotVerdict::Failed { reason: ProviderFailure::Transport, detail: "reset".to_owned() }
    } else {
        let count = if rng.u8(0..40) == 0 { 0 } else { rng.usize(1..=3) };
        BallotVerdict::Proposal(Proposal::Calls((0..count).map(|_| call(rng)).collect()))
    })
}

fn nonsense() -> BallotVerdict {
    BallotVerdict::Malformed { reason: MalformedReason::Syntax, detail: "no envelope".to_owned() }
}

fn call(rng: &mut Rng) -> ProposedCall {
    let tool = match rng.choice(TOOLS) {
        Some((name, ..)) if rng.u8(0..25) != 0 => name,
        _ => "nothing",
    };
    let number = rng.u32(0..1_000);
    let raw_args = match rng.u8(0..30) {
        0 => "{\"n\":\"one\"}".to_owned(),
        1 => "[1]".to_owned(),
        2 => format!("{{\"n\":{number},\"tenant_id\":\"other\"}}"),
        3..=6 => format!("{{\"n\":{number},\"pin\":\"{number}\"}}"),
        7..=12 => format!("{{\"n\":1,\"key\":\"k{}\"}}", number % 3),
        _ => format!("{{\"n\":{number}}}"),
    };
    let args = match Json::parse(&raw_args) {
        Ok(json) if json.value().is_object() => ProposedArgs::Readable(json),
        _ => ProposedArgs::Malformed { reason: MalformedReason::NotAnObject, detail: "no object".to_owned() },
    };
    ProposedCall { tool: tool.to_owned(), provider_id: None, args, raw_args }
}
