//! Paths, lexically: absolute under a declared root, with `.`, `..` and double slashes resolved. A spelling that systems
//! read differently is refused rather than guessed. What is not here: links, which only the file system knows; whoever
//! owns it passes the real path as a fact, and a client must check again.

use unicode_normalization::UnicodeNormalization;

use super::Refused;
use crate::shown::is_hidden;

const MAX_BYTES: usize = 4_096;
const MAX_PARTS: usize = 256;

/// A normalised absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NormPath {
    parts: Vec<String>,
    /// The parts by the narrower folding, which keeps apart what only some systems take for one name.
    strict: Vec<String>,
    had_parent: bool,
}

impl NormPath {
    /// The path with `/` between its parts; `/` alone for the top.
    pub(crate) fn text(&self) -> String {
        format!("/{}", self.parts.join("/"))
    }

    /// The last part; empty for the top.
    pub(crate) fn name(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }

    /// Whether the text had a `..`. Where a part before it is a link, the system goes elsewhere than this path says.
    pub(crate) const fn had_parent(&self) -> bool {
        self.had_parent
    }

    /// Whether this is that path or lies below it, on every system.
    pub(crate) fn is_under(&self, other: &Self) -> bool {
        self.may_be_under(other) && self.strict.starts_with(&other.strict)
    }

    /// Whether this is that path or lies below it on some system.
    pub(crate) fn may_be_under(&self, other: &Self) -> bool {
        self.parts.starts_with(&other.parts)
    }

    pub(crate) fn parts(&self) -> &[String] {
        &self.parts
    }
}

/// Where relative paths start, and how names compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    path: NormPath,
    fold_case: bool,
}

impl Root {
    /// A root from its text, which must be absolute and plain.
    pub(crate) fn new(text: &str, fold_case: bool) -> Result<Self, Refused> {
        let top = Self { path: NormPath { parts: Vec::new(), strict: Vec::new(), had_parent: false }, fold_case };
        if !text.starts_with('/') {
            return Err(Refused::Path("must be absolute"));
        }
        let path = top.normalise(text)?;
        if path.had_parent {
            return Err(Refused::Path("must not have `..`"));
        }
        Ok(Self { path, fold_case })
    }

    pub(crate) const fn path(&self) -> &NormPath {
        &self.path
    }

    /// A name as this file system compares it. By way of upper case, since `ſ` and `s` differ in lower case only.
    fn fold(&self, name: &str) -> String {
        if self.fold_case { lower(&lower(name).to_uppercase()) } else { name.to_owned() }
    }

    fn fold_strictly(&self, name: &str) -> String {
        if self.fold_case { lower(name) } else { name.to_owned() }
    }

    /// Normalises a path. Percent signs and stars are taken literally: they are characters of a name.
    pub(crate) fn normalise(&self, text: &str) -> Result<NormPath, Refused> {
        plain(text)?;
        let (mut parts, mut strict) = if text.starts_with('/') {
            (Vec::new(), Vec::new())
        } else {
            (self.path.parts.clone(), self.path.strict.clone())
        };
        let mut had_parent = false;
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    had_parent = true;
                    // Above the top is the top, as systems have it.
                    parts.pop();
                    strict.pop();
                }
                name => {
                    if self.fold_case {
                        folding_name(name)?;
                    }
                    parts.push(self.fold(name));
                    strict.push(self.fold_strictly(name));
                }
            }
            if parts.len() > MAX_PARTS {
                return Err(Refused::Parts(MAX_PARTS));
            }
        }
        Ok(NormPath { parts, strict, had_parent })
    }
}

fn lower(name: &str) -> String {
    name.nfc().collect::<String>().to_lowercase().nfc().collect()
}

/// Whether a character looks like a slash or a dot, or becomes one, with others or alone, under compatibility folding.
fn folds_into_path(c: char) -> bool {
    matches!(c, '\u{2044}' | '\u{2215}' | '\u{29f8}')
        || (!c.is_ascii() && std::iter::once(c).nfkc().any(|folded| matches!(folded, '/' | '\\' | '.')))
}

/// Refuses spellings that systems, shells and libraries read differently.
fn plain(text: &str) -> Result<(), Refused> {
    if text.is_empty() {
        return Err(Refused::Empty);
    }
    if text.len() > MAX_BYTES {
        return Err(Refused::Long(MAX_BYTES));
    }
    if text.chars().any(is_hidden) {
        return Err(Refused::Hidden);
    }
    if text.contains('\\') {
        return Err(Refused::Path("a backslash is a separator on some systems"));
    }
    if text.chars().any(folds_into_path) {
        return Err(Refused::Path("a character that some systems fold into a slash or dot"));
    }
    if text.starts_with('~') {
        return Err(Refused::Path("a leading `~` is a home directory to some readers"));
    }
    let named = text.strip_prefix('%').is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic() || c == '_'));
    if text.starts_with('$') || named {
        return Err(Refused::Path("a leading `$` or `%` is a variable to some readers"));
    }
    if text != text.trim() {
        return Err(Refused::Path("spaces around it are cut by some readers"));
    }
    let scheme = text.split_once(':').map(|(before, _)| before);
    if scheme.is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    }) {
        return Err(Refused::Path("it starts like a URL or a drive"));
    }
    Ok(())
}

/// Where case is folded, the other foldings of such systems are refused: they would give one file two names.
fn folding_name(name: &str) -> Result<(), Refused> {
    if name.ends_with(['.', ' ']) {
        return Err(Refused::Path("a name that ends in a dot or space loses it on some systems"));
    }
    if name.contains(':') {
        return Err(Refused::Path("a colon in a name opens a stream on some systems"));
    }
    let short = name.split_once('~').is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
    if short {
        return Err(Refused::Path("`~1` is the short form of another name on some systems"));
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_are_one_path() {
        let root = Root::new("/w", false).unwrap();
        for (text, norm) in [
            ("/w/a.txt", "/w/a.txt"),
            ("a.txt", "/w/a.txt"),
            ("./x/..//a.txt/", "/w/a.txt"),
            ("/w/./protected//a", "/w/protected/a"),
            ("/w/../etc/passwd", "/etc/passwd"),
            ("../../../..", "/"),
            ("/w/%2e%2e/etc/passwd", "/w/%2e%2e/etc/passwd"),
            ("...", "/w/..."),
            ("//w//a", "/w/a"),
            (".", "/w"),
        ] {
            assert_eq!(root.normalise(text).unwrap().text(), norm, "{text}");
        }
    }

    #[test]
    fn under_is_by_whole_names() {
        let root = Root::new("/w", false).unwrap();
        assert!(!root.normalise("/wx/a").unwrap().is_under(root.path()));
        assert!(root.normalise("/w").unwrap().is_under(root.path()));
        assert!(!root.normalise("/W/a").unwrap().is_under(root.path()));
        let folding = Root::new("/W", true).unwrap();
        assert!(folding.normalise("/w/A").unwrap().is_under(folding.path()));
        let composed = folding.normalise("/w/É").unwrap();
        assert_eq!(composed, folding.normalise("/w/e\u{301}").unwrap());
    }

    #[test]
    fn names_that_some_systems_take_for_one_are_denied_and_not_allowed() {
        let folding = Root::new("/w", true).unwrap();
        for (one, other) in [
            ("/w/\u{17f}ecret", "/w/secret"),
            ("/w/SECRET/x", "/w/\u{17f}ecret"),
            ("/w/\u{131}nfo/x", "/w/info"),
            ("/w/stra\u{df}e", "/w/STRASSE"),
            ("/w/\u{3c2}", "/w/\u{3c3}"),
            ("/w/\u{b5}", "/w/\u{3bc}"),
            ("/w/\u{fb01}le", "/w/file"),
        ] {
            let (one_norm, other_norm) = (folding.normalise(one).unwrap(), folding.normalise(other).unwrap());
            assert!(one_norm.may_be_under(&other_norm), "{one}");
            assert!(!one_norm.is_under(&other_norm), "{one}");
        }
        // These are one name wherever case is folded.
        for (one, other) in [("/w/\u{212a}ey", "/w/key"), ("/w/SECRET", "/w/secret"), ("../w/SECRET/x", "secret")] {
            assert!(folding.normalise(one).unwrap().is_under(&folding.normalise(other).unwrap()), "{one}");
        }
        let plain = Root::new("/w", false).unwrap();
        assert!(!plain.normalise("/w/\u{17f}ecret").unwrap().may_be_under(&plain.normalise("/w/secret").unwrap()));
    }

    #[test]
    fn characters_that_fold_into_slashes_or_dots_are_refused() {
        let root = Root::new("/w", false).unwrap();
        for c in [
            '\u{2024}', '\u{2025}', '\u{2026}', '\u{ff0e}', '\u{ff0f}', '\u{ff3c}', '\u{2215}', '\u{2044}', '\u{29f8}',
            '\u{fe68}', '\u{fe52}', '\u{fe30}', '\u{fe19}', '\u{2100}', '\u{2101}', '\u{2105}', '\u{2106}', '\u{2488}',
        ] {
            assert!(root.normalise(&format!("/w/a{c}b")).is_err(), "{c:?}");
        }
        for c in ('\u{80}'..=char::MAX).filter(|c| c.to_string().nfkc().any(|form| matches!(form, '/' | '\\' | '.'))) {
            assert!(root.normalise(&format!("/w/{c}")).is_err(), "{c:?}");
        }
        for text in ["/w/caf\u{e9}.txt", "/w/\u{65e5}\u{672c}/a", "/w/\u{bd} cup", "/w/a\u{ff0c}b"] {
            assert!(root.normalise(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn spellings_that_systems_read_differently_are_refused() {
        let root = Root::new("/w", false).unwrap();
        for text in [
            "",
            "a\0.txt",
            "C:\\w\\..\\x",
            "C:/x",
            "~/x",
            "~root/x",
            "file:///w/a",
            "$HOME/x",
            "%APPDATA%/x",
            " /w/a",
            "a\n",
            "a\u{200b}.txt",
            "\u{ff0e}\u{ff0e}/x",
            "a\\b",
        ] {
            assert!(root.normalise(text).is_err(), "{text:?}");
        }
        let folding = Root::new("/w", true).unwrap();
        for text in ["/w/a.", "/w/a ", "/w/.. /x", "/w/a:b", "/w/PROTEC~1/a"] {
            assert!(folding.normalise(text).is_err(), "{text:?}");
        }
        assert!(Root::new("w", false).is_err());
        assert!(Root::new("/w/../x", false).is_err());
        assert!(root.normalise(&"a/".repeat(300)).is_err());
        assert!(root.normalise(&"a".repeat(5_000)).is_err());
    }
}
