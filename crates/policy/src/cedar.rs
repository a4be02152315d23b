//! x
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CedarAnswer;
