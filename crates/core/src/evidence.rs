//! Evidence: successes counted per tag, and what is missing. What is not here: counting (`apply` folds it from the log).

use std::collections::BTreeMap;

use crate::event::Deficit;
use crate::id::Tag;

/// What is missing: only tags that are not met.
#[must_use]
pub fn deficits(required: &BTreeMap<Tag, u32>, counts: &BTreeMap<Tag, u32>) -> BTreeMap<Tag, Deficit> {
    required
        .iter()
        .filter_map(|(tag, need)| {
            let have = counts.get(tag).copied().unwrap_or(0);
            (have < *need).then(|| (tag.clone(), Deficit { have, need: *need }))
        })
        .collect()
}

/// The deficits as a sentence that the model can act on.
#[must_use]
pub fn describe(deficits: &BTreeMap<Tag, Deficit>) -> String {
    let parts: Vec<String> = deficits
        .iter()
        .map(|(tag, deficit)| format!("`{tag}`: {} of {} successful calls", deficit.have, deficit.need))
        .collect();
    format!("not done yet; evidence is missing: {}", parts.join("; "))
}
