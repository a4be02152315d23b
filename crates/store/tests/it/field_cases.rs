//! Failures that people reported of stores in the field (`tests/field-cases`, kind `log_store`), as far as they are about
//! the store. Cases about replay and policy belong to the core and the end-to-end tests.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use toolgate_core::event::{
    CallEnd, CallEnded, EndCause, EndedContent, Event, MessageReceived, OwnerChanged, TextContent,
};
use toolgate_core::id::CallId;
use toolgate_core::input::Reporter;
use toolgate_core::json::Json;
use toolgate_core::output::{Outcome, OutcomeStatus, Output};
use toolgate_core::time::Timestamp;
use toolgate_store::chain::{Checker, Head, Position, check};
use toolgate_store::{Append, Appended, Codec, CodecError, Header, MasterKey, NewSession, Row, SessionFilter, Store};

use crate::backend::Backend;
use crate::concurrency::one_chain;
use crate::sample::{Log, actor, all_rows, digest, node, projection, session_id, tenant};

contract!(
    f01_hostile_texts_are_stored,
    f02_interleaved_writers_leave_no_hole,
    f03_equal_times_page_without_loss,
    f04_what_was_stored_verifies_after_reopening,
    f06_parallel_appends_make_one_chain,
    f12_erased_content_is_gone_and_the_chain_is_whole,
    f13_numbers_keep_their_digits,
);

/// One case of `tests/field-cases`.
pub(crate) fn case(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/field-cases").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn master() -> MasterKey {
    MasterKey::from_bytes([3; 32])
}

fn message(text: &str) -> Event {
    Event::MessageReceived(MessageReceived { by: actor("alice"), content: TextContent { text: text.to_owned() } })
}

fn ended(call: &CallId, output: Option<Output>) -> Event {
    Event::CallEnded(Box::new(CallEnded {
        call: call.clone(),
        run: 1,
        step: 1,
        attempt: 1,
        end: CallEnd::Outcome(OutcomeStatus::Ok),
        cause: EndCause::Reported(Reporter::Server),
        reason: None,
        replaced_by: None,
        output_bytes: output.as_ref().map_or(0, Output::size),
        content: EndedContent {
            outcome: Some(Outcome { status: OutcomeStatus::Ok, output, detail: None }),
            detail: None,
        },
    }))
}

/// A session whose rows come from events.
struct Sealed {
    codec: Codec,
    next: Position,
}

impl Sealed {
    async fn start(store: &Arc<dyn Store>) -> Self {
        let session = session_id();
        let (codec, key) = Codec::create(tenant("acme"), session, master()).unwrap();
        let mut sealed = Self { codec, next: Position::FIRST };
        let mut append = sealed.batch(&[message("begin")]);
        append.new_keys.push(key);
        let new = NewSession {
            alias: None,
            body_fingerprint: digest("body"),
            bundle: digest("bundle"),
            created_at: Timestamp(1),
            owner: node("node-1", 1),
            append,
        };
        store.create_session(Arc::new(new)).await.unwrap();
        sealed
    }

    fn batch(&mut self, events: &[Event]) -> Append {
        let at = self.next;
        let encoded = self.codec.encode(events, None, Timestamp(1_700_000_000_000_000), at).unwrap();
        self.next = encoded.next;
        Append {
            tenant: tenant("acme"),
            session: self.codec.session(),
            epoch: at.epoch,
            expected_head: at.seq - 1,
            rows: encoded.rows,
            consumed_inbox: Vec::new(),
            idempotency: None,
            outbox: Vec::new(),
            projection: projection("running"),
            approvals: Vec::new(),
            blobs: Vec::new(),
            new_keys: encoded.new_keys,
            destroyed_keys: encoded.destroyed_keys,
            security: Vec::new(),
        }
    }

    async fn append(&mut self, store: &Arc<dyn Store>, event: Event) {
        let append = self.batch(&[event]);
        let answer = store.append(Arc::new(append)).await.unwrap();
        assert!(matches!(answer, Appended::Ok { .. }), "{answer:?}");
    }

    /// Reads everything back with the keys that are stored now.
    async fn reread(&self, store: &Arc<dyn Store>) -> Result<Vec<Event>, CodecError> {
        let acme = tenant("acme");
        let session = self.codec.session();
        let keys = store.session_keys(&acme, session).await.unwrap();
        let codec = Codec::open(acme.clone(), session, master(), &keys).unwrap();
        let rows = all_rows(store, &acme, session).await;
        rows.iter().map(|row| codec.decode(row).map(|recorded| recorded.event)).collect()
    }
}

/// Reads and checks the whole log; how many rows were checked.
pub(crate) async fn verified(store: &Arc<dyn Store>, session: toolgate_core::id::SessionId) -> u64 {
    let acme = tenant("acme");
    let row = store.session(&acme, session).await.unwrap().unwrap();
    let mut checker = Checker::new(&acme, session);
    for row in all_rows(store, &acme, session).await {
        checker.row(&row).unwrap();
    }
    let checked = checker.checked();
    checker.finish(&Head { seq: row.head_seq, hash: row.head_hash }).unwrap();
    checked
}

async fn f01_hostile_texts_are_stored(backend: Backend) {
    let store = &backend.store;
    let given = case("FC-F01");
    let mut sealed = Sealed::start(store).await;
    let mut written = Vec::new();
    for (index, item) in (0..).zip(given["given"]["append"].as_array().unwrap()) {
        let call = CallId::at(sealed.codec.session(), 1, 1, index);
        // What is not valid JSON text (a lone surrogate) reaches the store as text whose reader kept the escapes.
        let text = match item.get("outcome_text_json").or_else(|| item.get("args_json")) {
            Some(text) => text.as_str().unwrap().to_owned(),
            None => panic!("{item}"),
        };
        let text = serde_json::from_str::<String>(&text).unwrap_or(text);
        let event = ended(&call, Some(Output::text("text/plain", text)));
        let decided = decision(&call);
        store.append(Arc::new(carry(&mut sealed, vec![decided]))).await.unwrap();
        sealed.append(store, event.clone()).await;
        written.push(event);
    }
    assert_eq!(written.len(), 5);
    let read: Vec<_> = sealed.reread_ends(store).await;
    assert_eq!(read, written, "every outcome is recorded, unchanged");
    assert_eq!(verified(store, sealed.codec.session()).await, 11);
}

/// A header-only decision row, so that an end may follow.
fn decision(call: &CallId) -> Header {
    let mut header = Header::new("decided_elsewhere");
    header.call = Some(call.clone());
    header.marks.decision = true;
    header.marks.allow = true;
    header.marks.dispatch_attempt = Some(1);
    header
}

fn carry(sealed: &mut Sealed, headers: Vec<Header>) -> Append {
    let mut append = sealed.batch(&[]);
    for header in headers {
        let session = sealed.codec.session();
        let row = header.into_row(&tenant("acme"), session, &sealed.next, Timestamp(5), Vec::new()).unwrap();
        sealed.next = Position::after(&row);
        append.rows.push(row);
    }
    append
}

impl Sealed {
    async fn reread_ends(&self, store: &Arc<dyn Store>) -> Vec<Event> {
        let acme = tenant("acme");
        let rows = all_rows(store, &acme, self.codec.session()).await;
        let ends = rows.iter().filter(|row| row.kind == "call_ended");
        ends.map(|row| self.codec.decode(row).unwrap().event).collect()
    }
}

/// Two writers interleave; readers by position see each row once, and a writer that gives up leaves no hole.
async fn f02_interleaved_writers_leave_no_hole(backend: Backend) {
    let store = &backend.store;
    let given = case("FC-F02");
    let mut logs = [Log::started(store, "acme").await, Log::started(store, "acme").await];
    let (slow, fast) = (logs[0].plain(b"A"), logs[1].plain(b"B"));
    store.append(Arc::new(fast)).await.unwrap();
    let mut seen = Vec::new();
    for log in &logs {
        seen.push(store.read(&log.tenant, log.session, 1, 10).await.unwrap().len());
    }
    assert_eq!(seen, [0, 1]);
    store.append(Arc::new(slow)).await.unwrap();
    // "A rolls back instead": the next append of that session takes the same place.
    let abandoned = logs[0].plain(b"never sent");
    logs[0].pop();
    let sent = logs[0].plain(b"sent instead");
    assert_eq!(abandoned.rows[0].seq, sent.rows[0].seq);
    assert_eq!(store.append(Arc::new(sent)).await.unwrap(), Appended::Ok { head: 3 });
    for log in &logs {
        let rows = all_rows(store, &log.tenant, log.session).await;
        let seqs: Vec<_> = rows.iter().map(|row| row.seq).collect();
        let expected: Vec<_> = (1..=log.head()).collect();
        assert_eq!(seqs, expected, "{}", given["expect"]["per_session_numbers"]);
    }
}

async fn f03_equal_times_page_without_loss(backend: Backend) {
    let store = &backend.store;
    let given = case("FC-F03");
    let events = given["given"]["append"]["events"].as_u64().unwrap();
    let page_size = u32::try_from(given["given"]["page_size"].as_u64().unwrap()).unwrap();
    let mut log = Log::started(store, "acme").await;
    for _ in 1..events {
        let mut append = log.plain(b"x");
        // One time for all: rehash the row with it.
        let mut row = append.rows.remove(0);
        row.recorded_at = Timestamp(1_767_225_600_123_456);
        row.hash = toolgate_store::chain::row_hash(&log.tenant, log.session, &row);
        log.pop();
        log.rows.push(row.clone());
        append.rows = vec![row];
        store.append(Arc::new(append)).await.unwrap();
    }
    let first: Vec<Row> = log.rows.clone();
    let mut seen: Vec<Row> = Vec::new();
    let mut more = 5;
    loop {
        let page = store.read(&log.tenant, log.session, seen.last().map_or(0, |row| row.seq), page_size).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page);
        if more > 0 {
            store.append(Arc::new(log.plain(b"while paging"))).await.unwrap();
            more -= 1;
        }
    }
    assert_eq!(seen[..first.len()], first);
    assert_eq!(seen, log.rows);
    assert_eq!(seen.len(), 20);
}

async fn f04_what_was_stored_verifies_after_reopening(backend: Backend) {
    let given = case("FC-F04");
    let mut sealed = Sealed::start(&backend.store).await;
    let mut written = vec![message("begin")];
    for item in given["given"]["append"].as_array().unwrap() {
        let text = item.get("args_json").and_then(Value::as_str).unwrap_or("null");
        let event = message(Json::parse(text).unwrap().as_str());
        sealed.append(&backend.store, event.clone()).await;
        written.push(event);
    }
    let reopened = backend.second().await;
    assert_eq!(verified(&reopened, sealed.codec.session()).await, 4);
    assert_eq!(sealed.reread(&reopened).await.unwrap(), written);
}

async fn f06_parallel_appends_make_one_chain(backend: Backend) {
    let given = case("FC-F06");
    let appends = usize::try_from(given["given"]["parallel_appends"].as_u64().unwrap()).unwrap();
    let stores = [Arc::clone(&backend.store), backend.second().await];
    one_chain(&backend, appends, &stores).await;
}

async fn f12_erased_content_is_gone_and_the_chain_is_whole(backend: Backend) {
    let store = &backend.store;
    assert_eq!(case("FC-F12")["given"]["steps"][1], "erase content of session s1 (authorised)");
    let mut kept = Sealed::start(store).await;
    let mut erased = Sealed::start(store).await;
    for number in 0..20 {
        erased.append(store, message(&format!("personal-canary {number}"))).await;
        kept.append(store, message("kept")).await;
    }
    // The erasure is a row of its own, and destroys the key in the same append.
    let mut append = carry(&mut erased, vec![Header::new("erased")]);
    append.destroyed_keys = vec![toolgate_store::KeyId::session()];
    assert_eq!(store.append(Arc::new(append)).await.unwrap(), Appended::Ok { head: 22 });

    assert_eq!(store.session_keys(&tenant("acme"), erased.codec.session()).await.unwrap(), []);
    assert!(matches!(erased.reread(store).await, Err(CodecError::Erased { seq: 1 })));
    assert_eq!(verified(store, erased.codec.session()).await, 22);
    assert_eq!(verified(store, kept.codec.session()).await, 21);
    assert_eq!(kept.reread(store).await.unwrap().len(), 21);
    let listed = store.list_sessions(&tenant("acme"), &SessionFilter::default(), None, 10).await.unwrap();
    assert_eq!(listed.items.len(), 2, "no silent cascade");
}

async fn f13_numbers_keep_their_digits(backend: Backend) {
    let store = &backend.store;
    let given = case("FC-F13");
    let mut sealed = Sealed::start(store).await;
    let mut written = vec![message("begin")];
    let mut refused = 0;
    for raw in given["given"]["args_raw"].as_array().unwrap() {
        let Ok(args) = Json::parse(raw.as_str().unwrap()) else {
            refused += 1;
            continue;
        };
        let event = message(args.as_str());
        sealed.append(store, event.clone()).await;
        written.push(event);
    }
    assert_eq!(refused, 1, "1E400");
    let read = sealed.reread(store).await.unwrap();
    assert_eq!(read, written);
    for event in &read[1..] {
        let Event::MessageReceived(message) = event else { panic!("{event:?}") };
        let again = Json::parse(&message.content.text).unwrap();
        assert_eq!(again.as_str(), message.content.text, "a second pass is identical to the first");
    }
}

/// Field case F11: a log that an earlier release wrote still reads, and what is not known is refused by name.
#[test]
fn f11_the_golden_log_reads() {
    assert_eq!(case("FC-F11")["expect"]["unknown_event_kind"], "typed refusal naming kind and version");
    let owner = Event::OwnerChanged(OwnerChanged { node: "node-1".to_owned(), incarnation: 2 });
    let events = [(1, message("hello \u{1F600} \0")), (2, owner), (2, message("again"))];
    let now = crate::golden::write(&events);
    for golden in [crate::golden::read(), crate::golden::parse(&now)] {
        for ((_, event), row) in events.iter().zip(&golden.rows) {
            assert_eq!(&golden.codec.decode(row).unwrap().event, event);
        }
        let last = golden.rows.last().unwrap();
        let head = Head { seq: 3, hash: last.hash };
        check(&tenant("acme"), golden.codec.session(), &golden.rows, &head).unwrap();
    }
}
