//! Results as JUnit XML, for the test reports of continuous integration. What is not here: judging.

use super::Outcome;

/// The document.
pub(super) fn document(outcomes: &[Outcome]) -> String {
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"toolgate policy test\" tests=\"{}\" failures=\"{failed}\">\n",
        outcomes.len()
    );
    for outcome in outcomes {
        let (suite, name) = (escaped(&outcome.suite), escaped(&outcome.name));
        match &outcome.failure {
            None => text.push_str(&format!("    <testcase classname=\"{suite}\" name=\"{name}\"/>\n")),
            Some(why) => text.push_str(&format!(
                "    <testcase classname=\"{suite}\" name=\"{name}\">\n      <failure message=\"{}\"/>\n    </testcase>\n",
                escaped(why)
            )),
        }
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// Text as the value of an attribute. Characters that XML does not know become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            '\t' => out.push_str("&#9;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_failures_cannot_leave_their_attribute() {
        let outcome = |name: &str, failure: Option<&str>| Outcome {
            suite: "a.yaml".to_owned(),
            name: name.to_owned(),
            failure: failure.map(ToOwned::to_owned),
        };
        let text = document(&[outcome("fine", None), outcome("\"/><x>", Some("a & b\n\u{1}"))]);
        assert!(text.contains("tests=\"2\" failures=\"1\""), "{text}");
        assert!(text.contains("name=\"&quot;/&gt;&lt;x&gt;\""), "{text}");
        assert!(text.contains("message=\"a &amp; b&#10;\u{fffd}\""), "{text}");
    }
}
