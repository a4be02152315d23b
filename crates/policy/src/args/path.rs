//! Conditions on paths. What is not here: normalising (`derive::path`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Miss;
use crate::derive::{NormPath, Root, text};
use crate::fault::Faults;

/// What a path must be. Paths are compared after normalising; links are not seen, see `Facts::resolved_paths`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathForm {
    /// Where relative paths start; absolute.
    pub root: String,
    /// It is one of these or below one; absolute. Absent means the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Vec<String>>,
    /// It is none of these and below none; absolute, or relative to the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_under: Vec<String>,
    /// None of its parts below the top has one of these names, compared without case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_named: Vec<String>,
    /// The file system does not tell upper from lower case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fold_case: bool,
    /// It has no `..`, which a link before it would turn elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_parent: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Paths {
    root: Root,
    under: Vec<NormPath>,
    not_under: Vec<NormPath>,
    not_named: Vec<String>,
    no_parent: bool,
    form: PathForm,
}

pub(super) fn compile(form: &PathForm, at: &str, faults: &mut Faults) -> Option<Paths> {
    let root = match Root::new(&form.root, form.fold_case) {
        Ok(root) => root,
        Err(fault) => {
            faults.add(format!("{at}/root"), "root", format!("the root {fault}"));
            return None;
        }
    };
    let mut all = |list: &[String], key: &str| {
        let mut found = Vec::new();
        for (idx, text) in list.iter().enumerate() {
            match root.normalise(text) {
                Ok(path) if path.had_parent() => {
                    faults.add(format!("{at}/{key}/{idx}"), "path", "write the path without `..`");
                }
                Ok(path) => found.push(path),
                Err(fault) => faults.add(format!("{at}/{key}/{idx}"), "path", fault.to_string()),
            }
        }
        found
    };
    let under = form.under.as_ref().map_or_else(|| vec![root.path().clone()], |list| all(list, "under"));
    let not_under = all(&form.not_under, "not_under");
    if form.under.as_ref().is_some_and(Vec::is_empty) {
        faults.add(format!("{at}/under"), "path", "an empty list would refuse every path; leave it out for the root");
    }
    for (idx, denied) in not_under.iter().enumerate() {
        if !under.is_empty() && under.iter().all(|allowed| allowed.is_under(denied)) {
            faults.add(format!("{at}/not_under/{idx}"), "contradiction", "covers everything that `under` allows");
        }
    }
    for (idx, name) in form.not_named.iter().enumerate() {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            faults.add(format!("{at}/not_named/{idx}"), "name", "is one name of a file or folder, without slashes");
        }
    }
    let not_named = form.not_named.iter().map(|name| folded(name)).collect();
    Some(Paths { root, under, not_under, not_named, no_parent: form.no_parent, form: form.clone() })
}

fn folded(name: &str) -> String {
    use unicode_normalization::UnicodeNormalization;
    name.nfkc().collect::<String>().to_lowercase().to_uppercase().to_lowercase().nfkc().collect()
}

impl Paths {
    /// Whether a path, and where it really leads if that is known, keep to the bounds.
    pub(super) fn check(&self, value: &Value, resolved: Option<&str>) -> Result<(), Miss> {
        let text = text(value).map_err(|refused| Miss::Unreadable(refused.to_string()))?;
        self.one(text)?;
        resolved.map_or(Ok(()), |real| {
            self.one(real).map_err(|_| Miss::Fails("leads elsewhere than it says, out of its bounds".to_owned()))
        })
    }

    fn one(&self, text: &str) -> Result<(), Miss> {
        let path = self.root.normalise(text).map_err(|refused| Miss::Unreadable(refused.to_string()))?;
        let fails = |detail: String| Err(Miss::Fails(detail));
        if self.no_parent && path.had_parent() {
            return fails("must not have `..`".to_owned());
        }
        if !self.under.iter().any(|allowed| path.is_under(allowed)) {
            let shown = self.form.under.as_ref().map_or_else(|| self.form.root.clone(), |list| list.join(", "));
            return fails(format!("must be under {shown}"));
        }
        if self.not_under.iter().any(|denied| path.may_be_under(denied)) {
            return fails(format!("must not be under {}", self.form.not_under.join(", ")));
        }
        if path.parts().iter().any(|part| self.not_named.contains(&folded(part))) {
            return fails(format!("no part may be named {}", self.form.not_named.join(", ")));
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_denied_name_is_denied_in_every_case_that_some_system_folds() {
        let form: PathForm = from_value(json!({"root": "/w", "fold_case": true, "not_under": ["/w/secret"],
            "not_named": ["info"]}))
        .unwrap();
        let paths = compile(&form, "", &mut Faults::default()).unwrap();
        for text in
            ["/w/secret/a", "/w/SECRET", "/w/\u{17f}ecret", "\u{17f}ECRET/a", "/w/\u{131}nfo", "/w/a/\u{131}NFO"]
        {
            assert!(matches!(paths.check(&json!(text), None), Err(Miss::Fails(_))), "{text}");
        }
        assert!(paths.check(&json!("/w/secrets"), None).is_ok());
    }
}
