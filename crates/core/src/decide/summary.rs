//! Earlier steps are summed up before a model is asked whose window they have outgrown. When that is depends on an estimate
//! alone, so that it can be decided again; a summary that cannot be had costs no run, since what does not fit is left out.
//! What is not here: what is asked (`digest`), and what is left out (`window`).

use super::{Draft, Reply};
use crate::apply::budget::is_asked;
use crate::apply::summary::steps;
use crate::digest;
use crate::event::{
    Amount, BallotBudget, BudgetReserved, Event, SummaryAsked, SummaryContent, SummaryFault, SummaryReceived,
};
use crate::id::ModelName;
use crate::input::{Seat, SummaryWritten};
use crate::profile::Summarize;
use crate::reason::{Refusal, RefusalCode};
use crate::session::{Phase, Round, Summing};
use crate::transcript;
use crate::window::{self, BYTES_PER_TOKEN};

/// A summary that is due.
struct Due {
    round: Round,
    run: u32,
    model: ModelName,
    entries: usize,
    most: Amount,
}

impl Draft<'_> {
    /// Asks for a summary where one is due and there is room for it beside the round's own models, and says whether it did.
    pub(super) fn sums_up(&mut self) -> bool {
        let Some(due) = self.due() else { return false };
        let Due { round, run, model, entries, most } = due;
        let (step, attempt) = (round.step, round.attempt);
        let answers = self.session.transcript.iter().take(entries).map(|entry| steps(entry)).sum();
        self.push(Event::SummaryAsked(SummaryAsked {
            seat: Seat { run, step, round: round.round, ballot: 0, attempt },
            model,
            entries: u32::try_from(entries).unwrap_or(u32::MAX),
            answers,
        }));
        if self.is_budgeted() {
            let (ballots, charges) = (vec![BallotBudget { ballot: 0, most }], self.round_charges(most, 1));
            self.push(Event::BudgetReserved(BudgetReserved {
                run,
                step,
                round: round.round,
                attempt,
                ballots,
                charges,
            }));
        }
        true
    }

    fn due(&self) -> Option<Due> {
        let summarize = self.profile()?.summarize.as_ref()?;
        let run = self.session.active_run()?;
        let Phase::Asking(round) = &run.phase else { return None };
        if round.summing != Summing::Not || !round.ballots.is_empty() || !round.reserved.is_empty() {
            return None;
        }
        let entries = self.outgrown(round, summarize)?;
        let missing = round.missing_count();
        if run.model_calls.saturating_add(missing).saturating_add(1) > run.limits.max_model_calls {
            return None;
        }
        let def = self.bundle.model(&summarize.model)?;
        let question = digest::of(&self.session, entries, summarize, def);
        let most = self.most(Some(def), super::budget::tokens_of(&question));
        let (_, total) = self.round_most(round);
        if !self.leaves_room(total.plus(most), u64::from(missing) + 1) {
            return None;
        }
        Some(Due { round: round.clone(), run: run.no, model: summarize.model.clone(), entries, most })
    }

    /// How many entries do not fit a model of the round any more.
    fn outgrown(&self, round: &Round, summarize: &Summarize) -> Option<usize> {
        let summary = u64::from(summarize.max_bytes).div_ceil(BYTES_PER_TOKEN);
        round.missing().find_map(|ballot| {
            let model = self.model(ballot).filter(|model| model.max_input_tokens.is_some())?;
            window::overflow(&transcript::ask(&self.session, self.bundle, ballot), model, summary)
        })
    }
}

/// A summary came, or none.
pub(super) fn summary(draft: &mut Draft<'_>, written: &SummaryWritten) -> Result<Reply, Refusal> {
    let stale = || Refusal::new(RefusalCode::StaleAnswer, "this question is answered or was asked again");
    let run = draft.session.active_run().ok_or_else(stale)?;
    let Phase::Asking(round) = &run.phase else { return Err(stale()) };
    let (model, entries) = round.asked_to_sum_up().filter(|_| is_asked(round)).ok_or_else(stale)?;
    let seat = Seat { run: run.no, step: round.step, round: round.round, ballot: 0, attempt: round.attempt };
    if written.seat != seat {
        return Err(stale());
    }
    let (cost_microusd, charged) = draft.charged_by(draft.bundle.model(model), 0, written.usage);
    let (fault, content) = match &written.result {
        Ok(text) => draft.weighed(text, entries),
        Err(failure) => (Some(failure.fault), SummaryContent { text: None, detail: Some(failure.detail.clone()) }),
    };
    draft.push(Event::SummaryReceived(Box::new(SummaryReceived {
        seat,
        fault,
        usage: written.usage,
        model: written.model.clone(),
        cost_microusd,
        charged,
        content,
    })));
    if !draft.ended_by_deadline() {
        draft.check_bounds();
    }
    Ok(Reply::Accepted)
}

impl Draft<'_> {
    /// Whether a text can stand for so many entries, and the text as it is kept.
    fn weighed(&self, text: &str, entries: u32) -> (Option<SummaryFault>, SummaryContent) {
        let limit = self.profile().and_then(|profile| profile.summarize.as_ref()).map_or(0, |s| s.max_bytes);
        let text = digest::clip(text.trim(), usize::try_from(limit).unwrap_or(usize::MAX));
        let old = self.session.transcript.iter().take(usize::try_from(entries).unwrap_or(usize::MAX));
        let stood: u64 = old.map(|entry| window::replaceable(entry)).sum();
        let fault = if text.is_empty() {
            Some(SummaryFault::Empty)
        } else {
            (text.len() as u64 >= stood).then_some(SummaryFault::NotShorter)
        };
        (fault, SummaryContent { text: Some(text), detail: None })
    }
}
