//! Cuts a secret out of what a tool server sends back or an error says. What is not here: where secrets come from.

use secrecy::{ExposeSecret, SecretString};

/// What stands where a secret was.
const HIDDEN: &str = "[secret]";
/// Shorter secrets are not cut out of bodies, where they would hit ordinary text.
const MIN_IN_BODY: usize = 8;

/// Removes the secret from a sentence.
pub(super) fn sentence(text: &str, secret: Option<&SecretString>) -> String {
    match secret.map(ExposeSecret::expose_secret) {
        Some(secret) if !secret.is_empty() => text.replace(secret, HIDDEN),
        _ => text.to_owned(),
    }
}

/// Removes the secret from bytes, also where JSON escapes its slashes.
pub(super) fn body(bytes: Vec<u8>, secret: Option<&SecretString>) -> Vec<u8> {
    let Some(secret) = secret.map(ExposeSecret::expose_secret).filter(|secret| secret.len() >= MIN_IN_BODY) else {
        return bytes;
    };
    let escaped = secret.replace('/', "\\/");
    let bytes = replace(bytes, secret.as_bytes());
    if escaped == secret { bytes } else { replace(bytes, escaped.as_bytes()) }
}

fn replace(bytes: Vec<u8>, needle: &[u8]) -> Vec<u8> {
    if needle.is_empty() || !bytes.windows(needle.len()).any(|window| window == needle) {
        return bytes;
    }
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    while let Some((first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(needle) {
            kept.extend_from_slice(HIDDEN.as_bytes());
            rest = after;
        } else {
            kept.push(*first);
            rest = tail;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoed_secrets_are_cut_out_of_text_and_other_bytes() {
        let secret = SecretString::from("tok/0123456789");
        assert_eq!(body(b"\xffx tok/0123456789 tok\\/0123456789".to_vec(), Some(&secret)), b"\xffx [secret] [secret]");
        assert_eq!(body(b"nothing here".to_vec(), Some(&secret)), b"nothing here");
        assert_eq!(body(b"banana".to_vec(), Some(&SecretString::from("an"))), b"banana");
        assert_eq!(sentence("bad tok/0123456789!", Some(&secret)), "bad [secret]!");
    }
}
