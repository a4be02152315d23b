//! Files of one JSON object a line.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::Error;

/// Every line, read.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    let fault = |error| Error::File(path.to_owned(), error);
    let file = BufReader::new(File::open(path).map_err(fault)?);
    let mut all = Vec::new();
    for (at, line) in file.lines().enumerate() {
        let line = line.map_err(fault)?;
        let read = serde_json::from_str(&line).map_err(|error| Error::Line(path.to_owned(), at + 1, error))?;
        all.push(read);
    }
    Ok(all)
}
