//! Counts tokens as the model does, where its definition names a tokenizer and this program has it (feature `tokenizers`).
//! What is not here: what is cut when there are too many (`toolgate_core::window`).

use toolgate_core::bundle::model::Tokenizer;
use toolgate_core::window::{Counter, Estimate};

/// What counts for a model. Without the feature everything is estimated.
#[must_use]
pub fn counter(tokenizer: Tokenizer) -> &'static dyn Counter {
    match tokenizer {
        Tokenizer::Estimate => &Estimate,
        #[cfg(feature = "tokenizers")]
        Tokenizer::O200kBase => &encoding::O200K,
        #[cfg(feature = "tokenizers")]
        Tokenizer::Cl100kBase => &encoding::CL100K,
        #[cfg(not(feature = "tokenizers"))]
        Tokenizer::O200kBase | Tokenizer::Cl100kBase => &Estimate,
    }
}

/// Whether this program has the tokenizer itself.
#[must_use]
pub const fn is_known(tokenizer: Tokenizer) -> bool {
    cfg!(feature = "tokenizers") || matches!(tokenizer, Tokenizer::Estimate)
}

#[cfg(feature = "tokenizers")]
mod encoding {
    use std::fmt;

    use bpe_openai::{Tokenizer, cl100k_base, o200k_base};
    use toolgate_core::window::Counter;

    pub(super) static O200K: Encoding = Encoding { name: "o200k_base", tokenizer: o200k_base };
    pub(super) static CL100K: Encoding = Encoding { name: "cl100k_base", tokenizer: cl100k_base };

    /// A byte-pair encoding; its tables are made when it first counts.
    pub(super) struct Encoding {
        name: &'static str,
        tokenizer: fn() -> &'static Tokenizer,
    }

    impl fmt::Debug for Encoding {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.name)
        }
    }

    impl Counter for Encoding {
        /// In time that grows with the text, whatever is in it: texts of tools are counted as well.
        fn tokens(&self, text: &str) -> u64 {
            (self.tokenizer)().count(text) as u64
        }
    }
}
