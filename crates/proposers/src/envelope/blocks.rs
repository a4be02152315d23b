//! Finds code fences and JSON objects in a text without being fooled by fences and brackets inside JSON strings. What
//! is not here: whether what is found is an envelope (`parse`).

use crate::reasoning::object_end;

/// Objects without end that are tried before the search for objects is given up.
const MAX_UNBALANCED: usize = 16;

/// The fences of a text.
#[derive(Debug, Default)]
pub(super) struct Fences<'a> {
    /// The contents of closed fences, in order, trimmed.
    pub(super) closed: Vec<&'a str>,
    /// Whether a fence is opened and never closed.
    pub(super) has_open: bool,
    /// The text outside all fences, trimmed and joined.
    pub(super) outside: String,
}

/// The code fences of a text. A fence whose content starts with an object closes after that object; other fences close
/// at the next mark. A language tag is letters only; whatever else stands there counts as content.
pub(super) fn fences(text: &str) -> Fences<'_> {
    let mut found = Fences::default();
    let mut unbalanced = 0;
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once("```") {
        found.outside.push_str(before.trim());
        let inside = inside.trim_start_matches(|c: char| c.is_ascii_alphabetic()).trim_start();
        let has_object = inside.starts_with('{') && unbalanced < MAX_UNBALANCED;
        let object = has_object.then(|| object_end(inside)).flatten();
        unbalanced += usize::from(has_object && object.is_none());
        let after_object = object.map(|end| inside.split_at(end));
        if let Some((content, after)) = after_object
            && let Some(after) = after.trim_start().strip_prefix("```")
        {
            found.closed.push(content);
            rest = after;
        } else if let Some((content, after)) = inside.split_once("```") {
            found.closed.push(content.trim());
            rest = after;
        } else {
            found.has_open = true;
            found.outside.push_str(inside.trim());
            return found;
        }
    }
    found.outside.push_str(rest.trim());
    found
}

/// The complete JSON-like objects that stand side by side in a text, prose between them skipped.
pub(super) fn objects(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut unbalanced = 0;
    let mut rest = text;
    while let Some(at) = rest.find('{').filter(|_| unbalanced < MAX_UNBALANCED) {
        let (_, from) = rest.split_at(at);
        let end = object_end(from).unwrap_or_default();
        if end == 0 {
            unbalanced += 1;
        } else {
            found.push(from.split_at(end).0);
        }
        rest = from.split_at(end.max(1)).1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_inside_strings_do_not_cut() {
        let text =
            "Here:\n```json\n{\"md\":\"```rust\\nfn x() {}\\n```\"}\n```\nthen ```python\nprint(1)\n``` end ```open";
        let found = fences(text);
        assert_eq!(found.closed, ["{\"md\":\"```rust\\nfn x() {}\\n```\"}", "print(1)"]);
        assert!(found.has_open);
        assert_eq!(found.outside, "Here:thenend");
        assert_eq!(fences("```json5\n{}\n```").closed, ["5\n{}"]);
        assert_eq!(fences("```{\"a\":1}```").closed, ["{\"a\":1}"]);
        assert_eq!(fences("```json\n{\"a\":1} trailing\n```").closed, ["{\"a\":1} trailing"]);
    }

    #[test]
    fn objects_are_found_between_prose_in_bounded_work() {
        assert_eq!(objects("a {\"x\":\"}{\"} b {y} c } { d"), ["{\"x\":\"}{\"}", "{y}"]);
        assert!(objects(&"{".repeat(300_000)).is_empty());
        assert_eq!(fences(&"```{".repeat(300_000)).closed.len(), 150_000);
    }
}
