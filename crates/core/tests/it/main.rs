//! The core's tests: sessions as text, random sessions, bundles, schemas, the shape of the repository. One binary, so
//! that it links once.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests fail loudly, measure time and show their figures; the core itself does not"
)]

mod architecture;
mod broken;
mod bundles;
mod dialects;
mod faults;
mod field_cases;
mod generate;
mod invariants;
mod lint;
mod model_faults;
mod pipeline;
mod properties;
mod random;
mod render;
mod schemas;
mod script;
mod summaries;
mod tampering;
mod votes;
mod window;
mod words;
mod world;
mod written;
