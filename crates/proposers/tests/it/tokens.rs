//! Counting tokens: the estimate, and the encodings where this program has them.

use proptest::prelude::*;
use toolgate_core::bundle::model::Tokenizer;
use toolgate_proposers::tokens::{counter, is_known};

#[test]
fn the_estimate_is_three_bytes_a_token() {
    let estimate = counter(Tokenizer::Estimate);
    assert_eq!(["", "a", "abc", "abcd"].map(|text| estimate.tokens(text)), [0, 1, 1, 2]);
    assert!(is_known(Tokenizer::Estimate));
}

#[cfg(feature = "tokenizers")]
#[test]
fn the_encodings_count_as_their_models_do() {
    // Counts that the encodings' own makers publish.
    for (text, o200k, cl100k) in [
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("\u{304a}\u{8a95}\u{751f}\u{65e5}\u{304a}\u{3081}\u{3067}\u{3068}\u{3046}", 8, 9),
        ("", 0, 0),
    ] {
        let counts = (counter(Tokenizer::O200kBase).tokens(text), counter(Tokenizer::Cl100kBase).tokens(text));
        assert_eq!(counts, (o200k, cl100k), "{text:?}");
    }
}

#[cfg(feature = "tokenizers")]
#[test]
fn a_hostile_text_is_counted_in_time_that_grows_with_it() {
    let started = std::time::Instant::now();
    for text in ["a".repeat(1 << 18), " ".repeat(1 << 18), "\u{1f600}".repeat(1 << 16), "\n\t".repeat(1 << 17)] {
        assert!(counter(Tokenizer::O200kBase).tokens(&text) > 0);
    }
    // What grows with the square takes minutes at this size.
    assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_has_more_tokens_than_bytes(text in ".{0,200}") {
        for tokenizer in [Tokenizer::Estimate, Tokenizer::O200kBase, Tokenizer::Cl100kBase] {
            prop_assert!(counter(tokenizer).tokens(&text) <= text.len() as u64);
        }
    }
}
