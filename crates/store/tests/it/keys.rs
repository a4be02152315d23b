//! What is sealed opens only under its key and in its place.

use proptest::prelude::*;
use toolgate_store::{ContentKey, KeyError, KeyId, MasterKey, WrappedKey, place};

use crate::sample::{session_id, tenant};

fn master(byte: u8) -> MasterKey {
    MasterKey::from_bytes([byte; 32])
}

#[test]
fn a_wrapped_key_opens_what_it_sealed() {
    let (acme, session) = (tenant("acme"), session_id());
    let key = ContentKey::generate().unwrap();
    let wrapped = master(1).wrap(&acme, session, KeyId::session(), &key).unwrap();
    let place = place(&acme, session, &["row", "7"]);
    let sealed = key.seal(&place, b"secret \0 \xff").unwrap();
    assert!(!sealed.windows(6).any(|window| window == b"secret"));
    let again = master(1).unwrap(&acme, session, &wrapped).unwrap();
    assert_eq!(again.open(&place, &sealed).unwrap(), b"secret \0 \xff");
    assert_ne!(key.seal(&place, b"x").unwrap(), key.seal(&place, b"x").unwrap(), "each seal has its own nonce");
    assert_eq!(key.commitment(&[b"a", b"b"]), again.commitment(&[b"a", b"b"]));
    assert_ne!(key.commitment(&[b"ab"]), key.commitment(&[b"a", b"b"]));
    assert_ne!(key.commitment(&[b"a"]), ContentKey::generate().unwrap().commitment(&[b"a"]));
}

#[test]
fn a_wrapped_key_belongs_to_its_session() {
    let (acme, session) = (tenant("acme"), session_id());
    let key = ContentKey::generate().unwrap();
    let wrapped = master(1).wrap(&acme, session, KeyId::session(), &key).unwrap();
    let other_name = WrappedKey { id: KeyId::parse("other").unwrap(), ..wrapped.clone() };
    let cut = WrappedKey { wrapped: wrapped.wrapped[..10].to_vec(), ..wrapped.clone() };
    let attempts = [
        master(2).unwrap(&acme, session, &wrapped),
        master(1).unwrap(&tenant("globex"), session, &wrapped),
        master(1).unwrap(&acme, session_id(), &wrapped),
        master(1).unwrap(&acme, session, &other_name),
        master(1).unwrap(&acme, session, &cut),
    ];
    for attempt in attempts {
        assert_eq!(attempt.err(), Some(KeyError::DoesNotOpen));
    }
}

#[test]
fn sealed_content_stays_in_its_place() {
    let (acme, session) = (tenant("acme"), session_id());
    let key = ContentKey::generate().unwrap();
    let sealed = key.seal(&place(&acme, session, &["row", "1", "a"]), b"x").unwrap();
    for parts in [&["row", "2", "a"][..], &["row", "1", "b"], &["row", "1a"], &["row", "1"], &["beside", "1", "a"]] {
        assert_eq!(key.open(&place(&acme, session, parts), &sealed), Err(KeyError::DoesNotOpen));
    }
    let elsewhere = place(&tenant("globex"), session, &["row", "1", "a"]);
    assert_eq!(key.open(&elsewhere, &sealed), Err(KeyError::DoesNotOpen));
}

#[test]
fn keys_are_not_printed() {
    assert_eq!(format!("{:?}", master(0xab)), "MasterKey(..)");
    assert_eq!(format!("{:?}", ContentKey::generate().unwrap()), "ContentKey(..)");
    assert_eq!(master(1).derive("cursor"), master(1).derive("cursor"));
    assert_ne!(master(1).derive("cursor"), master(1).derive("ticket"));
    assert_ne!(master(1).derive("cursor"), master(2).derive("cursor"));
}

proptest! {
    #[test]
    fn no_bytes_open_by_chance(bytes in any::<Vec<u8>>()) {
        let key = ContentKey::generate().unwrap();
        let place = place(&tenant("acme"), session_id(), &["row", "1"]);
        prop_assert_eq!(key.open(&place, &bytes), Err(KeyError::DoesNotOpen));
    }
}
