//! Cuts what a tool's contract calls secret out of everything that is kept (ruling 1).

use serde_json::Value;

use crate::bundle::Bundle;
use crate::id::ToolId;
use crate::json::Json;

/// What stands in the place of a cut value.
const CUT: &str = "[redacted]";
/// What stands in the place of text that may carry a cut value.
pub(super) const CUT_TEXT: &str = "[cut: it carries redacted arguments]";

/// The pointers that a tool's contract names; empty for unknown tools.
pub(super) fn pointers<'a>(bundle: &'a Bundle, tool: &str) -> &'a [String] {
    ToolId::new(tool).ok().and_then(|id| bundle.tool(&id)).map_or(&[], |tool| tool.def.redact.as_slice())
}

/// The arguments without the values at the pointers; none when there was nothing to cut.
pub(super) fn cut(args: &Json, pointers: &[String]) -> Option<Json> {
    let mut value = args.value();
    let mut changed = false;
    for pointer in pointers {
        if let Some(place) = value.pointer_mut(pointer) {
            *place = Value::String(CUT.to_owned());
            changed = true;
        }
    }
    changed.then(|| Json::from_value(&value))
}
