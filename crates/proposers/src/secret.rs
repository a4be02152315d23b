//! API keys: looked up by name when a request is made, and cut out of whatever comes back. What is not here: who may
//! name which variable (bundle checks).

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// Where API keys come from. A key is asked for when a request is made and dropped after it.
pub trait SecretSource: Send + Sync + fmt::Debug {
    /// The secret of this name; `None` if there is none or it is empty.
    fn secret(&self, name: &str) -> Option<SecretString>;
}

/// Reads API keys from the environment of the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvSecrets;

impl SecretSource for EnvSecrets {
    fn secret(&self, name: &str) -> Option<SecretString> {
        std::env::var(name).ok().filter(|value| !value.is_empty()).map(SecretString::from)
    }
}

/// What stands where a key was.
pub(crate) const HIDDEN: &str = "[secret]";
/// Shorter keys are not cut out of answers, where they would hit ordinary text; details are always scrubbed.
pub(crate) const MIN_IN_BODY: usize = 8;

/// A key as it is, and as JSON may write it; none for one that is too short to be told from ordinary text.
pub(crate) fn spellings(key: &SecretString) -> Vec<SecretString> {
    let key = key.expose_secret();
    if key.len() < MIN_IN_BODY {
        return Vec::new();
    }
    let escaped = key.replace('/', "\\/");
    let escaped = (escaped != key).then_some(escaped);
    std::iter::once(key.to_owned()).chain(escaped).map(SecretString::from).collect()
}

/// Removes a key from a text that people or models may see.
pub(crate) fn scrub_text(text: &str, key: Option<&SecretString>) -> String {
    match key.map(ExposeSecret::expose_secret) {
        Some(key) if !key.is_empty() => text.replace(key, HIDDEN),
        _ => text.to_owned(),
    }
}

/// Removes a key that a server echoes from the bytes of its answer, also where JSON escapes the slashes of it.
pub(crate) fn scrub_body(body: Vec<u8>, key: Option<&SecretString>) -> Vec<u8> {
    let Some(key) = key.map(ExposeSecret::expose_secret).filter(|key| key.len() >= MIN_IN_BODY) else { return body };
    match String::from_utf8(body) {
        Ok(text) => {
            let escaped = key.replace('/', "\\/");
            if text.contains(key) || text.contains(&escaped) {
                text.replace(key, HIDDEN).replace(&escaped, HIDDEN).into_bytes()
            } else {
                text.into_bytes()
            }
        }
        // Not text, so no completion either: its bytes are never shown.
        Err(error) => error.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echoed_key_is_cut_out() {
        let key = SecretString::from("sk-live/0123456789");
        let body = br#"{"error":"bad key sk-live/0123456789 or sk-live\/0123456789"}"#.to_vec();
        let scrubbed = String::from_utf8(scrub_body(body, Some(&key))).unwrap_or_default();
        assert_eq!(scrubbed, r#"{"error":"bad key [secret] or [secret]"}"#);
        assert_eq!(scrub_text("key sk-live/0123456789!", Some(&key)), "key [secret]!");
        let short = SecretString::from("a");
        assert_eq!(scrub_body(b"banana".to_vec(), Some(&short)), b"banana");
        assert_eq!(scrub_text("banana", None), "banana");
    }
}
