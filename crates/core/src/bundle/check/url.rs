//! Addresses in bundles: usable as they stand. What is not here: where a server may connect to, which its operator says.

use url::Url;

use super::Check;

impl Check {
    /// An absolute http or https URL with a host, and nothing in it that would be a secret or be read in two ways.
    pub(super) fn url(&mut self, path: String, text: &str) {
        if let Some(detail) = unusable(text) {
            self.fault(path, "url", detail);
        }
    }
}

fn unusable(text: &str) -> Option<String> {
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Some("has white space or control characters; escape them".to_owned());
    }
    // The parser takes `http:x` for `http://x`; people do not.
    if !text.starts_with("http://") && !text.starts_with("https://") {
        return Some("needs an absolute http or https URL".to_owned());
    }
    match Url::parse(text) {
        Err(error) => Some(format!("is no URL: {error}")),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Some("has a user name or password; name an environment variable as `bearer_env` instead".to_owned())
        }
        Ok(_) => None,
    }
}
