//! Events become rows and come back: what is shown, what is sealed, what is gone after keys are destroyed.

use std::collections::BTreeMap;

use proptest::prelude::*;
use toolgate_core::event::{
    ApprovalContent, ApprovalDecided, ApprovalVerb, Bound, CallDispatched, CallEnd, CallEnded, Dispatch, EndCause,
    EndedContent, Event, MessageReceived, OutcomeRefused, OwnerChanged, Raise, TextContent,
};
use toolgate_core::id::{ApprovalId, CallId, ClientInstance, Sha256Digest};
use toolgate_core::input::Reporter;
use toolgate_core::json::Json;
use toolgate_core::output::{Body, NotExecuted, Outcome, OutcomeStatus, Output};
use toolgate_core::reason::RefusalCode;
use toolgate_core::time::Timestamp;
use toolgate_store::chain::{Head, Position, check};
use toolgate_store::{Codec, CodecError, FORMAT, Header, KeyId, MasterKey, Row, WrappedKey};

use crate::sample::{actor, digest, input, session_id, tenant};

const AT: Timestamp = Timestamp(1_700_000_000_000_000);

fn master() -> MasterKey {
    MasterKey::from_bytes([7; 32])
}

fn message(text: &str) -> Event {
    Event::MessageReceived(MessageReceived { by: actor("alice"), content: TextContent { text: text.to_owned() } })
}

fn reporter() -> Reporter {
    Reporter::Client {
        instance: ClientInstance::new("vscode-1").unwrap(),
        by: actor("alice"),
        fence: 7,
        args_hash: digest("the arguments"),
    }
}

fn ended(call: &CallId, output: &str) -> Event {
    let output = Output::text("text/plain", output.to_owned());
    Event::CallEnded(Box::new(CallEnded {
        call: call.clone(),
        run: 1,
        step: 2,
        attempt: 1,
        end: CallEnd::Outcome(OutcomeStatus::Ok),
        cause: EndCause::Reported(reporter()),
        reason: None,
        replaced_by: None,
        output_bytes: output.size(),
        content: EndedContent {
            outcome: Some(Outcome { status: OutcomeStatus::Ok, output: Some(output), detail: None }),
            detail: None,
        },
    }))
}

/// An approval whose edited arguments are redacted in the content and whole in the seal.
fn edited(call: &CallId, approval: ApprovalId) -> Event {
    Event::ApprovalDecided(Box::new(ApprovalDecided {
        approval,
        call: call.clone(),
        by: actor("bob"),
        digest: digest("what was seen"),
        decision: ApprovalVerb::Edit,
        missing: 0,
        grant: None,
        raises: Vec::new(),
        content: ApprovalContent {
            message: Some("use the other account".to_owned()),
            args: Some(Json::parse("{\"password\":null}").unwrap()),
            redacted: true,
        },
        sealed: BTreeMap::from([(call.clone(), Json::parse("{\"password\":\"hunter2\"}").unwrap())]),
    }))
}

struct Bench {
    codec: Codec,
    stored: Vec<WrappedKey>,
    rows: Vec<Row>,
    next: Position,
    call: CallId,
    approval: ApprovalId,
}

impl Bench {
    fn new() -> Self {
        let session = session_id();
        let (codec, key) = Codec::create(tenant("acme"), session, master()).unwrap();
        Self {
            codec,
            stored: vec![key],
            rows: Vec::new(),
            next: Position::FIRST,
            call: CallId::at(session, 1, 2, 0),
            approval: ApprovalId::at(session, 1, 2, 0),
        }
    }

    /// Writes a batch as the store would.
    fn write(&mut self, events: &[Event]) -> Vec<Row> {
        let encoded = self.codec.encode(events, Some(&input(&format!("in-{}", self.next.seq))), AT, self.next).unwrap();
        self.next = encoded.next;
        self.stored.extend(encoded.new_keys);
        self.stored.retain(|key| !encoded.destroyed_keys.contains(&key.id));
        self.rows.extend(encoded.rows.iter().cloned());
        encoded.rows
    }

    /// The codec as another process opens it from what is stored now.
    fn reopened(&self) -> Codec {
        let session = self.session();
        Codec::open(tenant("acme"), session, master(), &self.stored).unwrap()
    }

    fn session(&self) -> toolgate_core::id::SessionId {
        // The call id is derived from it, and each bench has its own.
        self.codec.session()
    }
}

fn shown(row: &Row) -> String {
    String::from_utf8(row.header.clone()).unwrap()
}

#[test]
fn events_come_back_as_they_were() {
    let mut bench = Bench::new();
    let dispatched = Event::CallDispatched(CallDispatched {
        call: bench.call.clone(),
        run: 1,
        step: 2,
        dispatch: Dispatch { attempt: 3, deadline_at: AT, instance: None },
    });
    let owner = Event::OwnerChanged(OwnerChanged { node: "node-1".to_owned(), incarnation: 4 });
    let refused = Event::OutcomeRefused(OutcomeRefused {
        run: 1,
        call: bench.call.clone(),
        code: some_refusal(),
        reporter: reporter(),
        claimed: OutcomeStatus::Ok,
    });
    let events = [
        message("a \0 NUL, \u{1F600}, \"quotes\""),
        owner,
        edited(&bench.call, bench.approval.clone()),
        dispatched,
        refused,
    ];
    let rows = bench.write(&events);
    let reopened = bench.reopened();
    for (row, event) in rows.iter().zip(&events) {
        for codec in [&bench.codec, &reopened] {
            let recorded = codec.decode(row).unwrap();
            assert_eq!(&recorded.event, event);
            assert_eq!((recorded.seq, recorded.epoch, recorded.at), (row.seq, 1, AT));
        }
    }
    assert_eq!(rows[0].input_id, Some(input("in-1")));
    assert!(rows[1..].iter().all(|row| row.input_id.is_none()), "only the first row records the input");
    let head = Head { seq: 5, hash: rows[4].hash };
    check(&tenant("acme"), bench.session(), &rows, &head).unwrap();
    assert_eq!(bench.next, Position { seq: 6, epoch: 1, prev_hash: rows[4].hash });
}

fn some_refusal() -> RefusalCode {
    RefusalCode::StaleAttempt
}

#[test]
fn columns_and_marks_follow_the_event() {
    let mut bench = Bench::new();
    let call = bench.call.clone();
    let approval = bench.approval.clone();
    let Event::ApprovalDecided(edit) = edited(&call, approval) else { panic!("not an approval") };
    let raise = ApprovalDecided {
        decision: ApprovalVerb::Approve,
        raises: vec![Raise { bound: Bound::MaxSteps, to: 9 }],
        ..(*edit).clone()
    };
    let of = |missing| ApprovalDecided { decision: ApprovalVerb::Approve, missing, ..(*edit).clone() };
    let (first, last) = (Event::ApprovalDecided(Box::new(of(1))), Event::ApprovalDecided(Box::new(of(0))));
    let dispatched = Event::CallDispatched(CallDispatched {
        call: call.clone(),
        run: 1,
        step: 2,
        dispatch: Dispatch { attempt: 1, deadline_at: AT, instance: None },
    });
    let rows = bench.write(&[
        Event::ApprovalDecided(Box::new(raise)),
        first,
        last,
        dispatched,
        ended(&call, "x"),
        message("y"),
    ]);
    let marks: Vec<_> = rows
        .iter()
        .map(|row| (row.marks.decision, row.marks.allow, row.marks.dispatch_attempt, row.marks.terminal))
        .collect();
    assert_eq!(
        marks,
        [
            (false, false, None, false),
            (false, false, None, false),
            (false, true, None, false),
            (false, false, Some(1), false),
            (false, false, None, true),
            (false, false, None, false),
        ]
    );
    assert!(rows[..5].iter().all(|row| row.call.as_ref() == Some(&call)));
    assert_eq!((rows[4].kind.as_str(), rows[4].run, rows[4].step), ("call_ended", Some(1), Some(2)));
}

#[test]
fn the_header_tells_no_content() {
    let mut bench = Bench::new();
    let call = bench.call.clone();
    let rows =
        bench.write(&[message("canary-content"), edited(&call, bench.approval.clone()), ended(&call, "canary-output")]);
    let plain = digest("the arguments").to_string();
    let seen = digest("what was seen").to_string();
    for row in &rows {
        for canary in ["canary-content", "canary-output", "hunter2", "other account", "password", &plain, &seen] {
            assert!(!shown(row).contains(canary), "`{canary}` in {}", shown(row));
            let payload = String::from_utf8_lossy(&row.payload).into_owned();
            assert!(!payload.contains(canary), "`{canary}` in the payload");
        }
    }
    assert!(shown(&rows[0]).contains("\"by\":\"alice\""), "{}", shown(&rows[0]));
    assert!(shown(&rows[2]).contains("\"output_bytes\":13"), "{}", shown(&rows[2]));
    let header = Header::read(&rows[1].header).unwrap();
    let keys = header.payload.unwrap().keys;
    assert_eq!(keys, ["session", call.as_str()]);
}

#[test]
fn a_seal_opens_until_its_call_has_ended() {
    let mut bench = Bench::new();
    let call = bench.call.clone();
    let event = edited(&call, bench.approval.clone());
    let row = bench.write(std::slice::from_ref(&event)).remove(0);
    assert!(bench.stored.iter().any(|key| key.id == KeyId::call(&call)));
    assert_eq!(bench.reopened().decode(&row).unwrap().event, event);

    bench.write(&[ended(&call, "done")]);
    assert_eq!(bench.stored.iter().map(|key| key.id.clone()).collect::<Vec<_>>(), [KeyId::session()]);
    for codec in [&bench.codec, &bench.reopened()] {
        let Event::ApprovalDecided(left) = codec.decode(&row).unwrap().event else { panic!("not an approval") };
        assert_eq!(left.sealed, BTreeMap::new());
        assert!(left.content.redacted);
    }
    let head = Head { seq: 2, hash: bench.rows[1].hash };
    check(&tenant("acme"), bench.session(), &bench.rows, &head).unwrap();
}

#[test]
fn a_key_that_lives_in_one_batch_is_never_stored() {
    let mut bench = Bench::new();
    let call = bench.call.clone();
    let approval = bench.approval.clone();
    let never = CallEnded {
        end: CallEnd::NotExecuted(NotExecuted::Denied),
        ..match ended(&call, "") {
            Event::CallEnded(ended) => *ended,
            other => panic!("{other:?}"),
        }
    };
    let encoded = bench
        .codec
        .encode(&[edited(&call, approval), Event::CallEnded(Box::new(never))], None, AT, bench.next)
        .unwrap();
    assert_eq!(encoded.new_keys, []);
    assert_eq!(encoded.destroyed_keys, []);
}

#[test]
fn without_the_session_key_the_content_is_erased_and_the_chain_is_whole() {
    let mut bench = Bench::new();
    let call = bench.call.clone();
    let owner = Event::OwnerChanged(OwnerChanged { node: "node-1".to_owned(), incarnation: 4 });
    let rows = bench.write(&[message("personal"), owner.clone(), ended(&call, "personal")]);
    bench.stored.clear();
    let erased = bench.reopened();
    assert!(matches!(erased.decode(&rows[0]), Err(CodecError::Erased { seq: 1 })));
    assert_eq!(erased.decode(&rows[1]).unwrap().event, owner);
    assert!(matches!(erased.decode(&rows[2]), Err(CodecError::Erased { seq: 3 })));
    let head = Head { seq: 3, hash: rows[2].hash };
    check(&tenant("acme"), bench.session(), &rows, &head).unwrap();
}

#[test]
fn foreign_keys_and_moved_payloads_do_not_open() {
    let mut bench = Bench::new();
    let rows = bench.write(&[message("one"), message("two")]);
    let other_master = MasterKey::from_bytes([8; 32]);
    assert!(Codec::open(tenant("acme"), bench.session(), other_master, &bench.stored).is_err());
    assert!(Codec::open(tenant("globex"), bench.session(), master(), &bench.stored).is_err());
    assert!(Codec::open(tenant("acme"), session_id(), master(), &bench.stored).is_err());
    let mut moved = rows[0].clone();
    moved.payload.clone_from(&rows[1].payload);
    assert!(matches!(bench.codec.decode(&moved), Err(CodecError::Key { seq: 1, .. })));
}

#[test]
fn unknown_kinds_and_newer_forms_are_refused_by_name() {
    let mut bench = Bench::new();
    let row = bench.write(&[message("x")]).remove(0);
    let change = |change: &dyn Fn(&mut Header)| {
        let mut header = Header::read(&row.header).unwrap();
        change(&mut header);
        Row { header: serde_json::to_vec(&header).unwrap(), ..row.clone() }
    };
    // The kind is part of the seal: an unknown one without content is what a newer release would write.
    let unknown = Row {
        payload: Vec::new(),
        ..change(&|header| {
            "teleported".clone_into(&mut header.kind);
            header.payload = None;
        })
    };
    let error = bench.codec.decode(&unknown).unwrap_err();
    assert!(matches!(&error, CodecError::UnknownKind { seq: 1, kind, form: 1 } if kind == "teleported"), "{error:?}");
    let newer = bench.codec.decode(&change(&|header| header.v = FORMAT + 1)).unwrap_err();
    assert!(matches!(newer, CodecError::NewerForm { seq: 1, form: 2 }), "{newer:?}");
    let broken = bench.codec.decode(&change(&|header| drop(header.event.remove("by")))).unwrap_err();
    assert!(matches!(broken, CodecError::Corrupt { seq: 1, .. }), "{broken:?}");
    // Stated rule: unknown fields of a known kind are ignored.
    let wider = change(&|header| drop(header.event.insert("new_in_v9".to_owned(), true.into())));
    assert_eq!(bench.codec.decode(&wider).unwrap().event, message("x"));
}

#[test]
fn contents_beside_the_log_open_only_for_their_purpose() {
    let bench = Bench::new();
    let title = bench.codec.seal("title", b"my title").unwrap();
    assert_eq!(bench.reopened().unseal("title", &title).unwrap(), b"my title");
    assert!(bench.codec.unseal("approval", &title).is_err());
    let (name, blob) = bench.codec.seal_blob(b"\0 large \xff").unwrap();
    assert_eq!(name, Sha256Digest::of(&blob.bytes));
    assert_eq!(bench.codec.open_blob(&blob).unwrap(), b"\0 large \xff");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_round_trips(text in any::<String>(), bytes in any::<Vec<u8>>()) {
        let mut bench = Bench::new();
        let call = bench.call.clone();
        let Event::CallEnded(mut end) = ended(&call, &text) else { panic!("not an end") };
        end.content.detail = Some(hex::encode(bytes));
        end.content.outcome.as_mut().unwrap().output.as_mut().unwrap().body = Body::Text(text.clone());
        let events = [message(&text), Event::CallEnded(end)];
        let rows = bench.write(&events);
        for (row, event) in rows.iter().zip(&events) {
            prop_assert_eq!(&bench.reopened().decode(row).unwrap().event, event);
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic(header in any::<Vec<u8>>(), payload in any::<Vec<u8>>(), pick in 0_u8..3) {
        let mut bench = Bench::new();
        let mut row = bench.write(&[message("x")]).remove(0);
        if pick != 1 {
            row.header = header;
        }
        if pick != 0 {
            row.payload = payload;
        }
        prop_assert!(bench.codec.decode(&row).is_err());
    }
}
