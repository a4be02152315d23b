//! Inputs for sessions that another node owns: into the session's inbox, then answered from what the owner made of them.
//! And clients of such sessions: the session is asked for. What is not here: the owner's side (`inbox`).

use std::time::Duration;

use tokio::time::Instant;
use toolgate_core::fold;
use toolgate_core::id::InputId;
use toolgate_core::reason::Refusal;
use toolgate_core::session::Session;
use toolgate_store::{Codec, Fate, HandOverState, InboxPut, InboxRow, NodeId, SessionKey};

use super::deps::Deps;
use super::letter::{Answer, Letter};
use super::{AttachRefused, Snapshot, Submission, Taken, load};
use crate::failure::Failure;

/// First wait before an answer is looked for again; doubles up to the most.
const LOOK_FIRST: Duration = Duration::from_millis(5);
/// Longest wait before an answer is looked for again.
const LOOK_MOST: Duration = Duration::from_millis(100);
/// Rows read at once.
const PAGE: u32 = 512;

/// The nodes that an input for this session is for, when it is not for this one.
pub(super) async fn owners(deps: &Deps, key: &SessionKey) -> Result<Option<Vec<NodeId>>, Failure> {
    let draining = deps.nodes.draining().is_cancelled();
    if !draining && !deps.nodes.has_others(&deps.node.node) {
        return Ok(None);
    }
    let row = deps.store.session(&key.tenant, key.session).await?.ok_or(Failure::NoSuchSession)?;
    Ok(match row.owner {
        _ if row.closed => None,
        Some(owner) if owner == deps.node => None,
        Some(owner) if deps.nodes.is_alive(&owner) => Some(vec![owner.node]),
        // Whoever takes it over finds the input.
        _ if draining => Some(deps.nodes.others(&deps.node.node)),
        _ => None,
    })
}

/// Puts an input into the inbox and waits for what becomes of it. After the patience of an append the input stays: it is
/// applied once, and whoever sends it again under the same id is answered then.
pub(super) async fn submit(
    deps: &Deps,
    key: &SessionKey,
    submission: Submission,
    owners: Vec<NodeId>,
) -> Result<Taken, Failure> {
    let codec = load::open_codec(&*deps.store, &deps.master, &key.tenant, key.session).await?;
    let id = match submission.id {
        Some(id) => id,
        None => crate::clock::new_input_id().map_err(|error| Failure::Internal(error.to_string()))?,
    };
    let (body, fingerprint) = Letter::new(submission.input, submission.idempotency)?.seal(&codec)?;
    let row = InboxRow { id: id.clone(), received_at: deps.clock.now(), body, fingerprint };
    match deps.store.inbox_put(&key.tenant, key.session, row).await? {
        InboxPut::Recorded { seq } => {
            let snapshot = load::load(deps, &key.tenant, key.session).await?.into_snapshot();
            return Ok(Taken { snapshot, events: Vec::new(), already: Some(seq) });
        }
        InboxPut::Ok | InboxPut::Waiting { .. } => {}
    }
    deps.nodes.wake(owners);
    answered(deps, key, &id, &codec).await
}

async fn answered(deps: &Deps, key: &SessionKey, id: &InputId, codec: &Codec) -> Result<Taken, Failure> {
    let until = Instant::now() + deps.settings.append_patience;
    let mut wait = LOOK_FIRST;
    loop {
        match deps.store.inbox_fate(&key.tenant, key.session, id).await? {
            Fate::Recorded { seq } => return recorded(deps, key, seq).await,
            Fate::Answered(sealed) => {
                let answer = Answer::open(codec, &sealed).map_err(|error| load::unreadable(&error))?;
                return given(deps, key, answer).await;
            }
            // Gone without a trace: the session was erased under it, or its answer is long forgotten.
            Fate::Unknown => return Err(Failure::Busy),
            Fate::Waiting if Instant::now() + wait >= until => return Err(Failure::OwnedElsewhere),
            Fate::Waiting => tokio::time::sleep(wait).await,
        }
        wait = (wait * 2).min(LOOK_MOST);
    }
}

async fn given(deps: &Deps, key: &SessionKey, answer: Answer) -> Result<Taken, Failure> {
    let already = match answer {
        Answer::Refused { code, detail } => return Err(Failure::Refused(Refusal { code, detail })),
        Answer::IdempotencyReused => return Err(Failure::IdempotencyReused),
        Answer::Unreadable => return Err(Failure::Internal("the owner could not read the input".to_owned())),
        Answer::Unchanged => None,
        Answer::Already { seq } => Some(seq),
    };
    let snapshot = load::load(deps, &key.tenant, key.session).await?.into_snapshot();
    Ok(Taken { snapshot, events: Vec::new(), already })
}

/// What the owner answered: the events of the input and the session as it was after them.
async fn recorded(deps: &Deps, key: &SessionKey, first: u64) -> Result<Taken, Failure> {
    let row = deps.store.session(&key.tenant, key.session).await?.ok_or(Failure::NoSuchSession)?;
    let bundle = deps.bundles.get(&*deps.store, &key.tenant, row.bundle).await?;
    // Keys that the input itself brought are known only now.
    let codec = load::open_codec(&*deps.store, &deps.master, &key.tenant, key.session).await?;
    let mut state = Session::new(key.session);
    let mut events = Vec::new();
    let mut updated_at = row.created_at;
    'log: loop {
        let rows = deps.store.read(&key.tenant, key.session, state.head, PAGE).await?;
        if rows.is_empty() {
            break;
        }
        for one in load::decode_all(&codec, &rows)? {
            if one.seq > first {
                // One batch has one time, one owner, and only its first row names the input.
                let same = events.last().is_some_and(|last: &toolgate_core::event::Recorded| {
                    last.at == one.at && last.epoch == one.epoch && one.input_id.is_none()
                });
                if !same {
                    break 'log;
                }
            }
            fold(&mut state, &one);
            updated_at = one.at;
            if one.seq >= first {
                events.push(one);
            }
        }
    }
    let snapshot = Snapshot { state: state.into(), bundle, alias: row.alias, created_at: row.created_at, updated_at };
    Ok(Taken { snapshot, events, already: None })
}

/// Asks the owner of a session for it, since a client of it is here, and waits until it is free for this node.
pub(super) async fn ask_for(deps: &Deps, key: &SessionKey) -> Result<(), AttachRefused> {
    let me = &deps.node.node;
    let failed = |error: toolgate_store::StoreError| AttachRefused::Failed(error.into());
    let mut asked = false;
    let until = Instant::now() + deps.settings.append_patience;
    let mut wait = LOOK_FIRST;
    loop {
        let Some(owners) = owners(deps, key).await.map_err(AttachRefused::Failed)? else { return Ok(()) };
        if deps.nodes.draining().is_cancelled() {
            return Err(AttachRefused::Failed(Failure::OwnedElsewhere));
        }
        if !asked {
            deps.store.hand_over_ask(key, me).await.map_err(failed)?;
            deps.nodes.wake(owners);
            asked = true;
        }
        match deps.store.hand_over_state(key, me).await.map_err(failed)? {
            HandOverState::Refused => {
                deps.store.hand_over_withdraw(key, me).await.map_err(failed)?;
                return Err(AttachRefused::ExecutorTaken);
            }
            HandOverState::Gone => asked = false,
            HandOverState::Waiting => {}
        }
        if Instant::now() + wait >= until {
            deps.store.hand_over_withdraw(key, me).await.map_err(failed)?;
            return Err(AttachRefused::Failed(Failure::OwnedElsewhere));
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LOOK_MOST);
    }
}
