//! Separates what a model thought from what it said: think blocks never hold calls or answers. What is not here:
//! reasoning that comes in fields of its own (`openai::completion`).

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
/// Open brackets without a partner that are looked at before braces stop meaning anything.
const MAX_UNBALANCED: usize = 16;

/// The text without its think blocks, and whether there were any. Blocks inside JSON objects and code fences are the
/// model's content and stay. An unclosed block reaches to the end; a closing mark without opening one ends a thought
/// that began before the text (templates put the opening mark into the prompt).
pub(crate) fn visible(text: &str) -> (String, bool) {
    if !text.contains(OPEN) && !text.contains(CLOSE) {
        return (text.to_owned(), false);
    }
    let mut out = String::new();
    let mut had_thoughts = false;
    let mut unbalanced = 0;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(thought) = rest.strip_prefix(OPEN) {
            had_thoughts = true;
            rest = thought.split_once(CLOSE).map_or("", |(_, after)| after);
            continue;
        }
        if let Some(after) = rest.strip_prefix(CLOSE) {
            had_thoughts = true;
            out.clear();
            rest = after;
            continue;
        }
        let whole = match c {
            '{' if unbalanced < MAX_UNBALANCED => {
                let end = object_end(rest);
                unbalanced += usize::from(end.is_none());
                end
            }
            '`' => fence_end(rest),
            _ => None,
        };
        let (kept, after) = rest.split_at(whole.unwrap_or(c.len_utf8()));
        out.push_str(kept);
        rest = after;
    }
    (out, had_thoughts)
}

/// Where the JSON object at the start of a text ends, reading only brackets and strings.
pub(crate) fn object_end(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn fence_end(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("```")?;
    inside.find("```").map(|at| at + 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_cut_and_content_is_kept() {
        for (text, left) in [
            ("<think>a {\"x\":1}</think>\n{\"y\":2}", "\n{\"y\":2}"),
            ("plan {\"x\":1} </think>answer", "answer"),
            ("<think>never closed {\"x\":1}", ""),
            ("<think>a</think>b<think>c</think>d", "bd"),
            ("{\"text\":\"<think>kept</think>\"}", "{\"text\":\"<think>kept</think>\"}"),
            ("```\n<think>kept</think>\n```", "```\n<think>kept</think>\n```"),
            ("open { brace <think>x</think>y", "open { brace y"),
        ] {
            assert_eq!(visible(text), (left.to_owned(), text.len() != left.len()), "{text}");
        }
    }

    #[test]
    fn hostile_text_is_read_in_bounded_work() {
        let text = format!("{}<think>", "{".repeat(200_000));
        assert_eq!(visible(&text).0.len(), 200_000);
    }
}
