//! Votes as a whole: failures that people reported in public (`tests/field-cases/FC-H*`), every order of arrival, logs of
//! earlier rules, and rules of one's own. What is not here: single sessions (`scripts/votes.txt`, `no_consensus.txt`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use toolgate_core::bundle::Bundle;
use toolgate_core::consensus::{Comparison, Electorate, Outputs, Rule, Standing, Tally, VoteRule, tally};
use toolgate_core::event::{ConsensusDecided, ConsensusResult, Event, Recorded};
use toolgate_core::input::{BallotCast, Input, Seat};
use toolgate_core::json::Json;
use toolgate_core::proposal::{BallotVerdict, MalformedReason, Proposal, ProviderFailure};
use toolgate_core::reason::{Ending, RefusalCode};
use toolgate_core::session::Phase;
use toolgate_core::{Reply, invariants, verify};

use crate::random::Random;
use crate::render::Names;
use crate::script::merge;
use crate::words::{self, Words, ballot, call};
use crate::world::World;

fn case(name: &str) -> Value {
    let path = format!("{}/../../tests/field-cases/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(case["case"], name);
    case
}

/// A profile with these votes over two tools.
fn bundle(consensus: &Value) -> Bundle {
    let tool = |parameters: Value| {
        json!({"description": "x", "venue": "server", "executor": {"builtin": "echo"}, "class": "read",
            "parameters": parameters})
    };
    let form = json!({
        "version": 1,
        "tools": {
            "search": tool(json!({"properties": {"query": {"type": "string"}, "limit": {"type": ["integer", "null"]}}})),
            "t": tool(json!({"properties": {"s": {"type": "string"}, "note": {"type": "string"}}})),
        },
        "profiles": {"p": {"tools": ["search", "t"], "consensus": consensus,
            "harness": {"max_steps": 3, "max_tool_calls": 9, "deadline_ms": 60_000}}},
        "default_model": "m",
        "models": {"m": {"provider": "scripted", "script": [{"done": 1}]}},
    });
    Bundle::load(&form.to_string()).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn opened(bundle: Bundle) -> World {
    let mut world = World::new(bundle, 11);
    let open = words::input(&world, &Names::default(), &mut Words::new("open profile=p"));
    world.send(None, open);
    world
}

/// Opens a session and lets its first round's ballots come in this order; what comes late is refused.
fn play(consensus: &Value, verdicts: &[BallotVerdict], order: &[usize]) -> World {
    let mut world = opened(bundle(consensus));
    for place in order {
        let seat = Seat { run: 1, step: 1, round: 1, ballot: u32::try_from(place + 1).unwrap(), attempt: 1 };
        let cast = BallotCast { seat, ballot: ballot(verdicts[*place].clone(), "said".to_owned(), None) };
        let before = world.log.len();
        let decided = world.send(None, Input::Ballot(Box::new(cast)));
        let late = matches!(&decided.reply, Reply::Refused(refusal) if refusal.code == RefusalCode::StaleAnswer);
        assert!(decided.reply == Reply::Accepted || late && world.log.len() == before, "{:?}", decided.reply);
    }
    world.check();
    world
}

fn in_order(consensus: &Value, verdicts: &[BallotVerdict]) -> World {
    play(consensus, verdicts, &(0..verdicts.len()).collect::<Vec<_>>())
}

fn calls(tool: &str, args: &str) -> BallotVerdict {
    BallotVerdict::Proposal(Proposal::Calls(vec![call(tool.to_owned(), Some(args))]))
}

fn done(output: &str) -> BallotVerdict {
    BallotVerdict::Proposal(Proposal::Done { output: Json::string(output) })
}

/// A proposal as the cases write them: a call, a final answer, a letter, or what went wrong.
fn sample(form: &Value) -> BallotVerdict {
    if let Some(tool) = form["tool"].as_str() {
        return calls(tool, form["args_raw"].as_str().unwrap());
    }
    if let Some(output) = form["final"].as_str() {
        return done(output);
    }
    let text = form.as_str().unwrap();
    match text {
        "unparsable" => BallotVerdict::Malformed { reason: MalformedReason::Syntax, detail: "not JSON".to_owned() },
        text if text.starts_with("error") => {
            BallotVerdict::Failed { reason: ProviderFailure::TimedOut, detail: text.to_owned() }
        }
        letter => calls("t", &json!({"s": letter}).to_string()),
    }
}

fn samples(form: &Value) -> Vec<BallotVerdict> {
    form.as_array().unwrap().iter().map(sample).collect()
}

/// The vote that a case names, over so many ballots, added up when all are there.
fn rule(word: &str, k: Option<u64>, n: usize) -> Value {
    match (word.split_once(" of "), k) {
        (Some((k, of)), _) => {
            assert_eq!(of, n.to_string());
            json!({"n": n, "k": k.parse::<u32>().unwrap(), "decide": "all"})
        }
        (None, Some(k)) => json!({"n": n, "rule": word, "k": k, "decide": "all"}),
        (None, None) => json!({"n": n, "rule": word, "decide": "all"}),
    }
}

fn decided(world: &World) -> Option<&ConsensusDecided> {
    world.log.iter().find_map(|recorded| match &recorded.event {
        Event::ConsensusDecided(e) => Some(e),
        _ => None,
    })
}

/// What stands, with what its ballot proposes; none without agreement.
fn winner(world: &World) -> Option<Proposal> {
    // One ballot is no vote, and stands as it is.
    let number = match decided(world) {
        Some(ConsensusDecided { result: ConsensusResult::Agreed { ballot }, .. }) => *ballot,
        Some(_) => return None,
        None => 1,
    };
    world.log.iter().find_map(|recorded| match &recorded.event {
        Event::BallotReceived(e) if e.seat.ballot == number => match &e.content.ballot.verdict {
            BallotVerdict::Proposal(proposal) => Some(proposal.clone()),
            _ => None,
        },
        _ => None,
    })
}

fn letter(world: &World) -> Option<String> {
    let Some(Proposal::Calls(calls)) = winner(world) else { return None };
    let toolgate_core::proposal::ProposedArgs::Readable(args) = &calls[0].args else { return None };
    args.value()["s"].as_str().map(ToOwned::to_owned)
}

fn sizes(world: &World) -> Vec<usize> {
    decided(world).map(|e| e.tally.groups.iter().map(Vec::len).collect()).unwrap_or_default()
}

/// Every order of the numbers below n.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for next in 0..n {
        all = all
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |place| {
                    let mut order = order.clone();
                    order.insert(place, next);
                    order
                })
            })
            .collect();
    }
    all
}

#[test]
fn fc_h01_spelling_makes_no_difference() {
    let case = case("FC-H01");
    let (given, expect) = (&case["given"], &case["expect"]);
    let verdicts = samples(&given["proposals"]);
    let world = in_order(&rule(given["mode"].as_str().unwrap(), None, verdicts.len()), &verdicts);
    assert_eq!(json!(sizes(&world)), expect["groups"]);
    let Some(Proposal::Calls(calls)) = winner(&world) else { panic!("no winner") };
    let toolgate_core::proposal::ProposedArgs::Readable(args) = &calls[0].args else { panic!("unreadable") };
    assert_eq!(json!([calls[0].tool, args.value()]), expect["winner"]);
    let nested = [
        calls_verdict("{\"query\":\"a\",\"x\":{\"b\":1,\"a\":[1,2]}}"),
        calls_verdict("{\"x\":{\"a\":[1,2],\"b\":1},\"query\":\"a\"}"),
        calls_verdict("{\"x\":{\"a\":[2,1],\"b\":1},\"query\":\"a\"}"),
    ];
    assert_eq!(sizes(&in_order(&rule("majority", None, 3), &nested)), [2, 1], "{}", expect["nested_objects"]);
}

fn calls_verdict(args: &str) -> BallotVerdict {
    calls("search", args)
}

#[test]
fn fc_h02_defaults_are_not_filled_in_and_null_is_not_dropped() {
    let case = case("FC-H02");
    let verdicts = samples(&case["given"]["proposals"]);
    let mut consensus = rule(case["given"]["profile"]["rule"].as_str().unwrap(), None, verdicts.len());
    consensus["on_no_consensus"] = case["expect"]["no_consensus"].clone();
    let world = in_order(&consensus, &verdicts);
    assert_eq!(sizes(&world), [1, 1, 1]);
    assert_eq!(decided(&world).unwrap().result, ConsensusResult::Escalated { ballot: 1 });
    assert_eq!(world.session.status().code(), "waiting_approval");
}

#[test]
fn fc_h03_ties_and_pluralities_in_every_order() {
    let case = case("FC-H03");
    assert_eq!(
        (&case["given"]["permute"], &case["expect"]["independent_of_order"]),
        (&json!("all orders"), &json!(true))
    );
    let sets = case["given"]["sets"].as_array().unwrap();
    for (set, expected) in sets.iter().zip(case["expect"]["winner"].as_array().unwrap()) {
        let verdicts = samples(&set["proposals"]);
        let expected = expected.as_str().unwrap();
        let expected = Some(expected).filter(|text| !text.starts_with("none"));
        if verdicts.is_empty() {
            let nobody = Electorate::new(0, Rule::Majority, None);
            let none = Tally { groups: Vec::new(), unreadable: Vec::new() };
            assert_eq!((nobody.standing(&none), expected), (Standing::Lost, None));
            continue;
        }
        let consensus = rule(set["mode"].as_str().unwrap(), set["k"].as_u64(), verdicts.len());
        for order in orders(verdicts.len()) {
            let world = play(&consensus, &verdicts, &order);
            assert_eq!(letter(&world).as_deref(), expected, "{set} {order:?}");
            let ballots = world.log.iter().filter(|r| matches!(r.event, Event::BallotReceived(_))).count();
            assert_eq!(ballots, verdicts.len(), "every sample is in the log");
            if let Some(decided) = decided(&world) {
                assert_eq!(decided.rule.code(), set["mode"], "the rule is in the log");
                assert_eq!(sizes(&world).iter().sum::<usize>(), verdicts.len(), "the sizes are in the log");
            }
        }
    }
}

#[test]
fn fc_h04_failed_ballots_do_not_shrink_the_electorate() {
    let case = case("FC-H04");
    assert!(case["expect"]["denominator"].as_str().unwrap().starts_with("requested n"));
    let sets = case["given"]["sets"].as_array().unwrap();
    for (set, expected) in sets.iter().zip(case["expect"]["winner"].as_array().unwrap()) {
        let verdicts = samples(&set["samples"]);
        let expected = expected.as_str().unwrap();
        let mut all = rule(set["rule"].as_str().unwrap(), None, verdicts.len());
        let mut early = all.clone();
        early["decide"] = json!("early");
        for consensus in [&mut all, &mut early] {
            for order in orders(verdicts.len()) {
                let world = play(consensus, &verdicts, &order);
                let run = world.session.run.as_ref().unwrap();
                let n = u32::try_from(verdicts.len()).unwrap();
                assert_eq!(run.model_calls, n, "all are charged, also failed and cancelled ones: {set}");
                if expected.contains("provider failure") {
                    assert_eq!(run.phase, Phase::Ended(Ending::ProviderFailed));
                    assert!(decided(&world).is_none());
                } else {
                    assert_eq!(letter(&world).unwrap_or("none".to_owned()), expected, "{set} {order:?}");
                }
            }
        }
    }
}

#[test]
fn fc_h05_final_answers_are_trimmed_and_empty_ones_are_none() {
    let case = case("FC-H05");
    let given = &case["given"];
    let output = |world: &World| match winner(world) {
        Some(Proposal::Done { .. }) => world.session.run.as_ref().unwrap().output.as_ref().map(Json::value),
        _ => None,
    };
    let verdicts = samples(&given["proposals"]);
    let world = in_order(&rule(given["mode"].as_str().unwrap(), None, 4), &verdicts);
    assert_eq!((output(&world), sizes(&world)), (Some(json!("A")), vec![3, 1]), "{}", case["expect"]["winner"]);
    let more = |place: usize| samples(&given["more"][place]["proposals"]);
    let world = in_order(&rule("majority", None, 3), &more(0));
    let tally = &decided(&world).unwrap().tally;
    assert_eq!((&tally.groups, &tally.unreadable), (&vec![vec![3]], &vec![1, 2]), "{}", case["expect"]["empty"]);
    assert_eq!(decided(&world).unwrap().result, ConsensusResult::Rejected);
    for order in orders(3) {
        let mut early = rule("majority", None, 3);
        early["decide"] = json!("early");
        let world = play(&early, &more(1), &order);
        assert_eq!(output(&world), Some(json!("A")), "white space around a text is no other answer: {order:?}");
    }
    let world = in_order(&rule("majority", None, 2), &more(2));
    assert_eq!(sizes(&world), [1, 1], "{}", case["expect"]["case_and_space"]);
}

/// Random ballots under random votes: whoever is faster, the same proposal stands, and it is the one that stands when all
/// ballots are waited for.
#[test]
fn the_order_of_arrival_changes_nothing() {
    let mut early_ones = 0;
    for seed in 0..120 {
        let random = &mut Random::new(seed);
        let n = 2 + random.below(3);
        let word = *random.pick(&["k_of_n", "plurality", "majority", "supermajority", "unanimous"]);
        let mut consensus = json!({"n": n, "rule": word,
            "on_no_consensus": random.pick(&["reject", "escalate", "retry"]), "retries": random.below(2)});
        if word == "k_of_n" {
            consensus["k"] = json!(1 + random.below(n));
        }
        if random.one_in(3) {
            consensus["escalate_below_percent"] = json!(random.pick(&[34, 60, 100]));
        }
        if random.one_in(2) {
            consensus["compare"] = json!({"t": ["/s"]});
        }
        let verdicts: Vec<BallotVerdict> = (0..n)
            .map(|place| match random.below(9) {
                0 => sample(&json!("error")),
                1 => sample(&json!("unparsable")),
                2 => done(random.pick::<&str>(&["A", " A", "b"])),
                _ => {
                    let note = if random.one_in(2) { format!("{place}") } else { String::new() };
                    calls("t", &json!({"s": random.pick(&["A", "A", "B"]), "note": note}).to_string())
                }
            })
            .collect();
        let mut all = consensus.clone();
        all["decide"] = json!("all");
        let stands = |world: &World| {
            let output = world.session.run.as_ref().unwrap().output.clone();
            let kind = decided(world).map(|e| match e.result {
                ConsensusResult::Agreed { .. } => "agreed",
                ConsensusResult::Escalated { .. } => "escalated",
                ConsensusResult::Retry => "retry",
                ConsensusResult::Rejected => "rejected",
            });
            let acts = winner(world).filter(|_| output.is_none()).map(|proposal| match proposal {
                Proposal::Calls(calls) => calls.iter().map(|call| call.raw_args.clone()).collect::<Vec<_>>(),
                Proposal::Done { .. } => vec!["done".to_owned()],
            });
            (kind, output, acts)
        };
        let expected = stands(&in_order(&all, &verdicts));
        for order in orders(n) {
            let world = play(&consensus, &verdicts, &order);
            assert_eq!(stands(&world), expected, "seed {seed}: {consensus} {verdicts:?} {order:?}");
            early_ones += usize::from(decided(&world).is_some_and(|e| !e.cancelled.is_empty()));
        }
    }
    assert!(early_ones > 300, "{early_ones} votes were decided early");
}

#[test]
fn the_first_readable_answer_stands_and_nothing_else_is_waited_for() {
    let consensus = json!({"n": 3, "rule": "first"});
    let verdicts = [sample(&json!("error")), sample(&json!("A")), sample(&json!("B"))];
    for (order, expected, cancelled) in [([0, 2, 1], "B", vec![2]), ([1, 0, 2], "A", vec![1, 3])] {
        let world = play(&consensus, &verdicts, &order);
        assert_eq!(letter(&world).as_deref(), Some(expected));
        assert_eq!(decided(&world).unwrap().cancelled, cancelled);
        assert_eq!(world.session.run.as_ref().unwrap().model_calls, 3);
    }
}

/// A log that was decided by the rules before votes could be decided early: the third ballot was waited for, and a larger
/// vote not held.
#[test]
fn logs_of_earlier_rules_verify_as_they_were_decided() {
    let mut plain = json!({"n": 3, "k": 2, "by_tool": {"t": {"n": 5, "k": 4}}});
    let old = bundle(&plain);
    merge(&mut plain, &json!({"decide": "all", "by_tool": null}));
    let verdicts = [sample(&json!("A")), sample(&json!("A")), sample(&json!("B"))];
    let world = in_order(&plain, &verdicts);
    let mut log = world.log.clone();
    for recorded in &mut log {
        let mut form = serde_json::to_value(&recorded.event).unwrap();
        let kind = recorded.event.kind();
        if kind == "session_opened" {
            form["bundle"] = json!(old.digest());
        }
        if kind == "run_started" {
            assert_eq!(form["limits"]["max_model_calls"], 9);
        }
        if form.get("rules_version").is_some() {
            form["rules_version"] = json!(2);
        }
        if kind == "consensus_decided" {
            for added in ["n", "rule", "cancelled"] {
                form.as_object_mut().unwrap().remove(added);
            }
        }
        recorded.event = serde_json::from_value(form).unwrap();
    }
    let id = world.session.id;
    let verified = verify(id, &log, &old).unwrap_or_else(|divergence| panic!("{divergence}"));
    assert_eq!(verified.redecided, 4);
    invariants::check(id, &log, &old).unwrap_or_else(|broken| panic!("{broken}"));
    // The same log, had it been decided by today's rules, is no log of this bundle.
    let today: Vec<Recorded> = world.log.clone();
    assert!(verify(id, &today, &old).is_err());
    let counted = log.iter().find_map(|r| match &r.event {
        Event::ConsensusDecided(e) => Some((e.electorate(), e.rule)),
        _ => None,
    });
    assert_eq!(counted, Some((3, Rule::KOfN)));
}

/// Somebody who embeds the core counts by a rule of their own: the first model has a veto.
#[test]
fn a_rule_of_ones_own_counts_a_tally() {
    struct Veto;
    impl VoteRule for Veto {
        fn electorate(&self) -> u32 {
            3
        }
        fn winner(&self, tally: &Tally) -> Option<u32> {
            tally.winner(2).filter(|winner| tally.group_of(*winner).is_some_and(|group| group.contains(&1)))
        }
    }
    let of = |letters: &[&str]| {
        let verdicts: Vec<BallotVerdict> = letters.iter().map(|letter| sample(&json!(letter))).collect();
        let comparison = Comparison { only: &BTreeMap::new(), outputs: Outputs::Trimmed };
        tally((1..).zip(&verdicts), &comparison)
    };
    assert_eq!(Veto.standing(&of(&["A", "A"])), Standing::Open, "a rule that does not say waits for all");
    assert_eq!(Veto.standing(&of(&["A", "B", "A"])), Standing::Won(1));
    assert_eq!(Veto.standing(&of(&["A", "B", "B"])), Standing::Lost);
}

/// What is certain is certain: for every tally, the standing is that of every way in which it can be completed.
#[test]
fn a_vote_is_decided_exactly_when_nothing_can_change_it() {
    let rules = [Rule::Plurality, Rule::Majority, Rule::Supermajority, Rule::Unanimous];
    let votes = (1..=5).flat_map(|n| {
        let counted = (1..=n).map(move |k| Electorate::new(n, Rule::KOfN, Some(k)));
        counted.chain(rules.map(|rule| Electorate::new(n, rule, None)))
    });
    let mut seen = 0;
    for vote in votes {
        // Letters of the ballots in order; `-` is unreadable. A new letter is the next one, so that no form comes twice.
        let mut partial = vec![String::new()];
        for _ in 0..vote.n {
            let longer = partial.iter().flat_map(|ballots| {
                let next = ballots.bytes().filter(u8::is_ascii_uppercase).max().map_or(b'A', |last| last + 1);
                (b'A'..=next).chain([b'-']).map(move |letter| format!("{ballots}{}", char::from(letter)))
            });
            let longer: Vec<String> = longer.collect();
            for ballots in &partial {
                let outcomes: BTreeSet<Option<char>> = completions(ballots, vote.n as usize)
                    .iter()
                    .map(|full| {
                        vote.winner(&grouped(full)).map(|ballot| char::from(full.as_bytes()[ballot as usize - 1]))
                    })
                    .collect();
                let expected = match outcomes.iter().collect::<Vec<_>>()[..] {
                    [None] => "lost".to_owned(),
                    [Some(letter)] => format!("won {letter}"),
                    _ => "open".to_owned(),
                };
                let found = match vote.standing(&grouped(ballots)) {
                    Standing::Open => "open".to_owned(),
                    Standing::Lost => "lost".to_owned(),
                    Standing::Won(ballot) => format!("won {}", char::from(ballots.as_bytes()[ballot as usize - 1])),
                };
                assert_eq!(found, expected, "{vote:?} {ballots}");
                seen += 1;
            }
            partial = longer;
        }
    }
    assert!(seen > 900, "{seen}");
}

/// Every way in which the missing ballots can come.
fn completions(ballots: &str, n: usize) -> Vec<String> {
    if ballots.len() == n {
        return vec![ballots.to_owned()];
    }
    let next = ballots.bytes().filter(u8::is_ascii_uppercase).max().map_or(b'A', |last| last + 1);
    (b'A'..=next).chain([b'-']).flat_map(|letter| completions(&format!("{ballots}{}", char::from(letter)), n)).collect()
}

fn grouped(ballots: &str) -> Tally {
    let verdicts: Vec<BallotVerdict> = ballots
        .chars()
        .map(|letter| sample(&json!(if letter == '-' { "unparsable".to_owned() } else { letter.to_string() })))
        .collect();
    tally((1..).zip(&verdicts), &Comparison { only: &BTreeMap::new(), outputs: Outputs::Trimmed })
}
