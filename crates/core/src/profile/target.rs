//! Which tools a bound or a hook is about. What is not here: the finer selectors of policy rules (`toolgate-policy`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::ToolId;
use crate::tool::{Risk, ToolClass, ToolDef};

/// Tools: all of them, or those that fit every key given; within a key, any of its values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Every tool. Written out, so that an empty target is no accident.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Tools by id.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<ToolId>,
    /// Tools of these classes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub classes: BTreeSet<ToolClass>,
    /// Tools of these risks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub risks: BTreeSet<Risk>,
}

impl Target {
    /// Whether the tool is meant.
    #[must_use]
    pub fn fits(&self, id: &ToolId, def: &ToolDef) -> bool {
        self.all
            || ((self.tools.is_empty() || self.tools.contains(id))
                && (self.classes.is_empty() || self.classes.contains(&def.class))
                && (self.risks.is_empty() || self.risks.contains(&def.risk))
                && self.narrows())
    }

    /// Whether it names anything besides `all`.
    #[must_use]
    pub fn narrows(&self) -> bool {
        !self.tools.is_empty() || !self.classes.is_empty() || !self.risks.is_empty()
    }
}
