//! The journal of the tools: what it answers by class. What is not here: the tools.

use toolgate_torture::journal::{Asked, Class, Journal};

fn asked(call: &str, attempt: u64) -> Asked {
    Asked { call: call.to_owned(), attempt, fence: 1, tool: "t".to_owned(), args: "{}".to_owned(), receipt: 0 }
}

#[test]
fn an_idempotent_tool_repeats_its_answer_and_others_do_not() {
    let journal = Journal::default();
    for class in [Class::Idempotent, Class::Read, Class::Once] {
        let first = journal.note(class, asked(class.word(), 1));
        let again = journal.note(class, asked(class.word(), 2));
        assert_eq!(first == again, class == Class::Idempotent, "{class:?}");
    }
    let receipts: Vec<u64> = journal.all().iter().map(|asked| asked.receipt).collect();
    assert_eq!(receipts, [1, 1, 3, 4, 5, 6]);
    assert_eq!((journal.len(), journal.is_empty()), (6, false));
}
