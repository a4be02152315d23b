//! Tool definitions as each provider takes them. What is validated never changes: only what the model is shown does, where
//! a provider would refuse it. What is not here: which constructs a provider refuses (`toolgate_core::bundle::dialect`).

use serde_json::{Value, json};
use toolgate_core::ask::ToolView;
use toolgate_core::bundle::dialect::{is_strict, shown};
use toolgate_core::bundle::model::{ModelDef, Provider};

use crate::names::WireNames;

/// The `tools` of a request, in the order of the ask.
pub(crate) fn definitions(tools: &[ToolView], names: &WireNames, def: &ModelDef) -> Value {
    tools.iter().map(|tool| definition(tool, names, def)).collect()
}

fn definition(tool: &ToolView, names: &WireNames, def: &ModelDef) -> Value {
    let name = names.to_wire(tool.id.as_str());
    let schema = tool.parameters.value();
    let strict = def.strict_tools && is_strict(&schema);
    let schema = shown(def.provider, &schema).schema;
    match def.provider {
        Provider::Anthropic => json!({"name": name, "description": tool.description, "input_schema": schema}),
        Provider::OpenaiResponses => json!({
            "type": "function",
            "name": name,
            "description": tool.description,
            "parameters": schema,
            // Without a word the provider takes every tool as strict.
            "strict": strict,
        }),
        Provider::Openai | Provider::Scripted => {
            let mut function = json!({"name": name, "description": tool.description, "parameters": schema});
            if let (true, Some(map)) = (strict, function.as_object_mut()) {
                map.insert("strict".to_owned(), json!(true));
            }
            json!({"type": "function", "function": function})
        }
    }
}
