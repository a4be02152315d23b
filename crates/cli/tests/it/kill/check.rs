//! What must hold once a cell is played: for every cell (nothing acknowledged is lost, each call as often as its class allows,
//! both runs over), and for its row of the crash matrix. What is not here: `toolgate verify`, which the cell runs too.

use std::collections::BTreeMap;

use serde_json::Value;

use super::outside::Event;
use super::play::{FIRST, Played, SECOND};
use super::stubs::Asked;

type Log = BTreeMap<u64, Event>;

/// How a run ended, if it has.
pub(super) fn ending(log: &Log, run: u64) -> Option<&str> {
    log.values().map(|event| &event.value).find(|e| e["type"] == "run_ended" && e["run"] == run)?["ending"].as_str()
}

/// One call as the log tells it.
#[derive(Debug)]
struct CallLog {
    id: String,
    run: u64,
    args: Value,
    /// Since when it might be sent, as far as decisions go.
    free: Option<u64>,
    /// Attempt and place of each dispatch.
    dispatches: Vec<(u64, u64)>,
    ended: u64,
    status: String,
    cause: String,
    attempt: u64,
}

impl CallLog {
    fn dispatched_before(&self, place: u64) -> bool {
        self.dispatches.iter().any(|(_, seq)| *seq < place)
    }
}

struct Checked<'a> {
    played: &'a Played,
    log: Log,
    calls: Vec<CallLog>,
    asked: Vec<Asked>,
    /// Where owners changed.
    owners: Vec<u64>,
    /// Where the executor of open calls was lost: a new owner for server calls, a new instance for client calls.
    lost: Option<u64>,
}

/// Checks everything; panics at the first thing that does not hold.
pub(super) async fn all(played: &Played) {
    let log = played.outside.whole_log(&played.session).await;
    acknowledged(played, &log).await;
    once_each(played, &log).await;
    let owners = places(&log, |event| event["type"] == "owner_changed");
    let lost = if played.cell.at_client() {
        places(&log, |event| event["type"] == "client_attached" && event["client_id"] == SECOND).first().copied()
    } else {
        owners.first().copied()
    };
    let checked = Checked { played, calls: calls(&log), asked: played.world.asked(), owners, lost, log };
    checked.journal();
    checked.classes();
    checked.runs();
    checked.row();
}

fn places(log: &Log, holds: impl Fn(&Value) -> bool) -> Vec<u64> {
    log.iter().filter(|(_, event)| holds(&event.value)).map(|(seq, _)| *seq).collect()
}

/// What anybody was told is in the log, byte for byte, and the same request again gets the same answer.
async fn acknowledged(played: &Played, log: &Log) {
    assert!(log.keys().copied().eq(1..=log.len() as u64), "a gap in {:?}", log.keys());
    for (seq, event) in played.outside.seen() {
        assert_eq!(log.get(&seq).map(|kept| kept.raw.as_str()), Some(event.raw.as_str()), "event {seq} has changed");
    }
    for (seq, kind) in &played.told {
        assert_eq!(log.get(seq).map(|kept| &kept.value["type"]), Some(&Value::from(kind.as_str())), "event {seq}");
    }
    let acks = played.outside.acks();
    assert!(acks.len() >= 2, "{acks:?}");
    for (request, ack) in acks {
        assert_eq!(played.outside.send(&request).await, ack, "{request:?}");
    }
}

/// One session, one further message, whatever was sent how often.
async fn once_each(played: &Played, log: &Log) {
    let list = played.outside.get("/v1/sessions").await;
    let list: Value = serde_json::from_str(&list.body).unwrap();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list:#}");
    assert_eq!(places(log, |event| event["type"] == "message_received").len(), 1);
    let session = played.outside.get(&format!("/v1/sessions/{}", played.session)).await;
    let session: Value = serde_json::from_str(&session.body).unwrap();
    assert_eq!(
        (&session["run"]["no"], session["run"]["ending"].as_str()),
        (&Value::from(2), ending(log, 2)),
        "{session:#}"
    );
    // A client may have come back after the log was read.
    assert!(session["head_seq"].as_u64() >= Some(log.len() as u64), "{session:#}");
}

/// Every call that was ever decided; all of them have ended.
fn calls(log: &Log) -> Vec<CallLog> {
    let of = |call: &str, kind: &'static str| -> Vec<(u64, &Value)> {
        let fits = |event: &Value| event["type"] == kind && event["call_id"] == call;
        log.iter().map(|(seq, event)| (*seq, &event.value)).filter(|(_, event)| fits(event)).collect()
    };
    let decided = log.iter().filter(|(_, event)| event.value["type"] == "call_decided");
    let call = |(seq, event): (&u64, &Event)| {
        let (seq, event) = (*seq, &event.value);
        let id = event["call_id"].as_str().unwrap();
        let approved = of(id, "approval_decided").first().map(|(seq, _)| *seq);
        let at_once = event["dispatch"]["attempt"].as_u64().map(|attempt| (attempt, seq));
        let later = of(id, "call_dispatched").into_iter().map(|(seq, event)| (event["attempt"].as_u64().unwrap(), seq));
        let ends = of(id, "call_ended");
        assert_eq!(ends.len(), 1, "{id} has one end: {ends:#?}");
        let (ended, end) = ends[0];
        let text = |field: &str| end[field].as_str().unwrap().to_owned();
        CallLog {
            id: id.to_owned(),
            run: event["run"].as_u64().unwrap(),
            args: event["content"]["args"].clone(),
            free: if event["decision"] == "allow" { Some(seq) } else { approved },
            dispatches: at_once.into_iter().chain(later).collect(),
            ended,
            status: text("status"),
            cause: text("cause"),
            attempt: end["attempt"].as_u64().unwrap(),
        }
    };
    decided.map(call).collect()
}

impl Checked<'_> {
    /// Was the call under way when its executor was lost?
    fn was_open(&self, call: &CallLog) -> bool {
        self.lost.is_some_and(|lost| call.dispatched_before(lost) && call.ended > lost)
    }

    fn asked_for<'a>(&'a self, call: &'a CallLog) -> impl Iterator<Item = &'a Asked> {
        self.asked.iter().filter(|asked| asked.call == call.id)
    }

    /// Whatever reached the tool was dispatched before, as it was decided, and no attempt reached it twice.
    fn journal(&self) {
        for asked in &self.asked {
            let call = self.calls.iter().find(|call| call.id == asked.call);
            let call = call.unwrap_or_else(|| panic!("the tool was asked for a call that nobody decided: {asked:?}"));
            assert!(call.dispatches.contains(&(asked.attempt, asked.fence)), "{asked:?} was not dispatched: {call:#?}");
            assert_eq!(asked.key, call.id);
            assert_eq!(serde_json::from_str::<Value>(&asked.args).unwrap(), call.args);
            let same = self.asked_for(call).filter(|other| other.attempt == asked.attempt).count();
            assert_eq!(same, 1, "attempt {} of {} reached the tool more than once", asked.attempt, call.id);
        }
        for call in self.played.world.all_effects().keys() {
            assert!(self.calls.iter().any(|known| known.id == *call), "an effect without a call: {call}");
        }
    }

    /// Each call was done as often as its class allows, and ended as it must.
    fn classes(&self) {
        let cell = &self.played.cell;
        for call in &self.calls {
            let effects = self.played.world.effects(&call.id);
            let attempts = call.dispatches.len() as u64;
            assert!(call.dispatches.iter().map(|(attempt, _)| *attempt).eq(1..=attempts), "{call:#?}");
            assert_eq!(call.attempt, attempts, "{call:#?}");
            if cell.is_once() {
                assert!(attempts <= 1 && effects <= 1, "a `once` call was done {effects} times: {call:#?}");
            }
            if call.status == "ok" {
                let most = if cell.class == "read" { attempts } else { 1 };
                assert!((1..=most).contains(&effects), "done {effects} times: {call:#?}");
            }
            match (call.dispatches.is_empty(), self.was_open(call), cell.is_once()) {
                (true, _, _) => {
                    assert_eq!((call.status.as_str(), effects), ("run_ended", 0), "{call:#?}");
                    assert_eq!(ending(&self.log, call.run), Some("indeterminate_outcome"), "{call:#?}");
                }
                (false, true, true) => {
                    let cause = if cell.at_client() { "client_lost" } else { "owner_lost" };
                    assert_eq!(call.status, "indeterminate", "{call:#?}");
                    assert!([cause, "run_ended"].contains(&call.cause.as_str()), "{call:#?}");
                }
                (false, true, false) => {
                    assert_eq!((call.status.as_str(), attempts), ("ok", 2), "sent again as the same call: {call:#?}");
                }
                (false, false, _) => assert_eq!((call.status.as_str(), attempts), ("ok", 1), "{call:#?}"),
            }
        }
    }

    /// Both runs ended as their calls let them, and every question to a model is counted.
    fn runs(&self) {
        let mut counted = 0;
        for run in [1, 2] {
            let calls = || self.calls.iter().filter(|call| call.run == run);
            let stopped = !self.played.plan.goes_on && calls().any(|call| call.status == "indeterminate");
            let expected = if stopped { "indeterminate_outcome" } else { "done" };
            assert_eq!(ending(&self.log, run), Some(expected), "run {run}");
            let ended = self.log.values().find(|e| e.value["type"] == "run_ended" && e.value["run"] == run).unwrap();
            counted += ended.value["model_calls"].as_u64().unwrap();
            if !stopped {
                let steps = if run == 1 { self.played.plan.steps * self.played.plan.calls } else { 1 };
                assert_eq!(calls().count() as u64, steps, "run {run}");
            }
        }
        let asked = self.played.world.model_asked().len() as u64;
        assert!(counted >= asked, "the model was asked {asked} times, and {counted} are counted");
        assert!(self.played.cell.point != "K2" || counted > asked, "a question that was lost counts");
    }

    /// What the cell's row of the crash matrix says.
    fn row(&self) {
        let Played { cell, plan, log, .. } = self.played;
        let first = self.owners.first().copied();
        match cell.point {
            "K0" | "K1" | "K14" => assert!(self.owners.len() <= 1, "{:?}", self.owners),
            "K16" => assert_eq!(self.owners.len(), 0),
            "K13" => assert_eq!(self.owners, [self.owners[0], self.owners[0] + 1], "one more epoch and nothing else"),
            _ => assert_eq!(self.owners.len(), 1, "{:?}", self.owners),
        }
        // The place of the crash in the log.
        let crash = first.unwrap_or(u64::MAX);
        let holds = match cell.point {
            "K2" | "K3" => {
                let again = self.kinds_after(crash, "ballot_received").any(|event| event["attempt"] == 2);
                again && self.kinds_after(crash, "recovered").count() == 1
            }
            "K4" => self.kinds("ballot_received").any(|(seq, ballot)| {
                let same = |event: &Value| event["run"] == ballot["run"] && event["step"] == ballot["step"];
                seq < crash && self.kinds_after(crash, "consensus_decided").any(same)
            }),
            "K5" => self.calls.iter().any(|call| {
                let free = call.free.is_some_and(|free| free < crash);
                free && !call.dispatched_before(crash) && !call.dispatches.is_empty()
            }),
            "K6" => self.at_the_crash(crash, |call| !self.asked_for(call).any(|asked| asked.before)),
            "K7" if cell.at_client() && !plan.client_dies => {
                self.at_the_crash(crash, |call| self.asked_for(call).any(|asked| asked.before))
            }
            "K7" => self.at_the_crash(crash, |call| self.asked_for(call).any(|asked| asked.before && !asked.done)),
            "K8" | "K9" => {
                self.at_the_crash(crash, |call| self.asked_for(call).any(|asked| asked.before && asked.done))
            }
            "K10" => log.contains("the same bytes are sent again"),
            "K11" => {
                let last = self.calls.iter().map(|call| call.ended).filter(|ended| *ended < crash).max();
                // An outcome may have been stored together with the answer to the question that follows from it.
                let later = |last| self.kinds("ballot_received").filter(|(seq, _)| (last..crash).contains(seq)).count();
                last.is_some_and(|last| later(last) <= 1)
            }
            "K13" => self.kinds_after(crash, "owner_changed").count() == 1,
            // What every cell shows is all that these are about.
            _ => true,
        };
        assert!(holds, "the row of {} does not hold; {plan:?}; {:#?}; {:#?}", cell.point, self.calls, self.asked);
        if cell.at_client() && !plan.client_dies {
            let others = places(&self.log, |e| e["type"] == "client_attached" && e["client_id"] != FIRST);
            assert!(others.is_empty(), "{others:?}");
        }
    }

    fn kinds<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (u64, &'a Value)> {
        let of = move |(_, event): &(u64, &Value)| event["type"] == kind;
        self.log.iter().map(|(seq, event)| (*seq, &event.value)).filter(of)
    }

    fn kinds_after<'a>(&'a self, place: u64, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.kinds(kind).filter(move |(seq, _)| *seq > place).map(|(_, event)| event)
    }

    /// Whether there is such a call among those under way when the process died.
    fn at_the_crash(&self, crash: u64, holds: impl Fn(&CallLog) -> bool) -> bool {
        self.calls.iter().any(|call| call.dispatched_before(crash) && call.ended > crash && holds(call))
    }
}
