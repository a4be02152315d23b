//! The extent of policies, bounded before a recursive reader sees them: how deep the tree of each may be at most, and how
//! long it is. What is not here: whether it is a policy at all (`read`).

use super::{MAX_DEPTH, MAX_TOKENS};

/// One level of brackets while the text is walked.
#[derive(Debug, Default)]
struct Level {
    /// `&&`, `||`, `if`, `then`, `else`, `when`, `unless` since the last comma: each may be one level above its operands.
    logic: usize,
    /// Operators, accesses and calls since the last of those: each may be one level above the rest.
    operators: usize,
    /// The deepest group in brackets since the last of those.
    inner: usize,
    /// The deepest operand since the last comma.
    operand: usize,
    /// The deepest element since the bracket.
    element: usize,
}

impl Level {
    fn end_operand(&mut self) {
        self.operand = self.operand.max(self.operators + self.inner);
        self.operators = 0;
        self.inner = 0;
    }

    fn end_element(&mut self) {
        self.end_operand();
        self.element = self.element.max(self.logic + self.operand);
        self.logic = 0;
        self.operand = 0;
    }

    fn depth(mut self) -> usize {
        self.end_element();
        self.element
    }

    /// The depth that is certain already.
    fn so_far(&self) -> usize {
        self.element.max(self.logic + self.operand.max(self.operators + self.inner))
    }
}

/// Refuses texts with a policy that is too deep or too long: the byte and a sentence.
pub(super) fn bounded(text: &str) -> Result<(), (usize, String)> {
    let mut levels = vec![Level::default()];
    let mut tokens = 0_usize;
    let mut chars = text.char_indices().peekable();
    while let Some((offset, c)) = chars.next() {
        let top = levels.len() == 1;
        let Some(level) = levels.last_mut() else { break };
        tokens += usize::from(!c.is_whitespace());
        match c {
            '"' => {
                let mut escaped = false;
                for (_, inner) in chars.by_ref() {
                    match inner {
                        '\\' if !escaped => escaped = true,
                        '"' if !escaped => break,
                        _ => escaped = false,
                    }
                }
            }
            // A comment ends with its line.
            '/' if chars.next_if(|(_, next)| *next == '/').is_some() => {
                while chars.next_if(|(_, inner)| *inner != '\n' && *inner != '\r').is_some() {}
            }
            '(' | '[' | '{' => {
                level.operators += 1;
                levels.push(Level::default());
            }
            ')' | ']' | '}' if !top => {
                let depth = levels.pop().map_or(0, Level::depth);
                if let Some(outer) = levels.last_mut() {
                    outer.inner = outer.inner.max(depth);
                }
            }
            ';' if top => {
                levels = vec![Level::default()];
                tokens = 0;
            }
            ',' => level.end_element(),
            '&' | '|' => {
                // Two of them are one operator.
                let _ = chars.next_if(|(_, next)| *next == c);
                level.end_operand();
                level.logic += 1;
            }
            '=' | '!' | '<' | '>' | '+' | '-' | '*' | '.' | '?' => {
                let _ = chars.next_if(|(_, next)| *next == '=');
                level.operators += 1;
            }
            c if c.is_alphanumeric() || c == '_' => {
                let mut end = offset + c.len_utf8();
                while let Some((at, inner)) = chars.next_if(|(_, inner)| inner.is_alphanumeric() || *inner == '_') {
                    end = at + inner.len_utf8();
                }
                match text.get(offset..end).unwrap_or_default() {
                    "if" | "then" | "else" | "when" | "unless" => {
                        level.end_operand();
                        level.logic += 1;
                    }
                    "in" | "has" | "like" | "is" => level.operators += 1,
                    _ => {}
                }
            }
            _ => {}
        }
        let depth = levels.len() + levels.last().map_or(0, Level::so_far);
        if depth > MAX_DEPTH || levels.iter().map(Level::so_far).sum::<usize>() > MAX_DEPTH {
            let detail = format!(
                "a policy that may be more than {MAX_DEPTH} levels deep; use `[…].contains(…)` for many values, or several policies"
            );
            return Err((offset, detail));
        }
        if tokens > MAX_TOKENS {
            return Err((offset, format!("a policy with more than {MAX_TOKENS} words and signs; split it")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(body: &str) -> bool {
        bounded(&format!("permit(principal, action, resource) when {{ {body} }};")).is_ok()
    }

    #[test]
    fn what_people_write_fits() {
        assert!(fits(&vec!["context.input.path like \"*x*\""; 30].join(" && ")));
        assert!(fits(&format!("[{}].contains(context.input.to)", vec!["\"a\""; 2_000].join(", "))));
        assert!(fits("if a.b == 1 then (c.d > 5 || [1, 2].contains(e)) else !(f.g has h && f.g.h in [a, b])"));
        assert!(bounded(&"permit(principal, action, resource) when { a && b };".repeat(100)).is_ok());
        assert!(fits(
            "a == \"((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((\" // ((((((((((((((((((((((((((((((((((((((((((((\n"
        ));
    }

    #[test]
    fn what_is_deep_or_long_does_not() {
        for (part, end) in [("(", ")"), ("[", "]"), ("{a:", "}"), ("if a then ", " else b"), ("!(", ")")] {
            assert!(!fits(&format!("{}1{}", part.repeat(45), end.repeat(45))), "{part}");
        }
        for part in [" && a", " || a", " + 1", ".a", ".contains(1)", "[\"a\"]", " == 1", " * 2", " - 1", " in b", "&a"]
        {
            assert!(!fits(&format!("a{}", part.repeat(45))), "{part}");
        }
        assert!(!fits(&format!("[{}]", "1,".repeat(5_000))));
        assert!(!fits(&"(a && ".repeat(25)));
    }
}
