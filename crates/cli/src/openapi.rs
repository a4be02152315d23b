//! `toolgate openapi`: the REST contract as the code has it.

use std::process::ExitCode;

use crate::failure::CommandError;
use crate::output;

pub(crate) fn run() -> Result<ExitCode, CommandError> {
    let document = toolgate_server::openapi::yaml().map_err(|error| CommandError::of(&error))?;
    output::line(document.trim_end());
    Ok(ExitCode::SUCCESS)
}
