//! Schemas as attackers write them: each is refused when it is registered, or checks the worst data in bounded time.
//! What is not here: the schemas (`refused`, `bounded`), and what schemas mean (`field_cases`, and the units in `schema`).

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use toolgate_core::schema::Schema;

mod bounded;
mod refused;

/// Time of the processor for registering one schema, and for one check, without optimisation.
const BOUND: Duration = Duration::from_millis(50);
/// A few tries, since caches are shared with other processes: what is unbounded stays too slow.
const TRIES: usize = 5;

/// A name, the schema, and data that cost it much.
type Hostile = (&'static str, Value, Value);

/// How a hostile schema fares.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Refused,
    Bounded,
    /// Registering it, or one check, took too long.
    Slow(Duration, Duration),
}

#[test]
fn hostile_schemas_are_refused_or_bounded() {
    let (refused, bounded) = (refused::refused(), bounded::bounded());
    let all = || refused.iter().chain(&bounded);
    let different = |texts: BTreeSet<String>| texts.len();
    assert!(all().count() >= 100, "{} schemas", all().count());
    assert_eq!(different(all().map(|(name, ..)| (*name).to_owned()).collect()), all().count(), "each has its name");
    let mut wrong = Vec::new();
    for (list, expected) in [(&refused, Fate::Refused), (&bounded, Fate::Bounded)] {
        for (name, schema, data) in list {
            let found = fate(name, schema, data);
            if found != expected {
                wrong.push(format!("{name}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn fate(name: &str, schema: &Value, data: &Value) -> Fate {
    let (compiled, compiling) = timed(|| Schema::compile(schema));
    let checking = compiled.as_ref().map_or(Duration::ZERO, |compiled| timed(|| compiled.mismatches(data, false)).1);
    println!(
        "{name}: {} in {compiling:?}, checked in {checking:?}",
        if compiled.is_ok() { "compiled" } else { "refused" }
    );
    match compiled {
        _ if compiling >= BOUND || checking >= BOUND => Fate::Slow(compiling, checking),
        Ok(_) => Fate::Bounded,
        Err(_) => Fate::Refused,
    }
}

/// Does it and takes the time that this thread had the processor: a busy machine is no slow check.
fn timed<T>(work: impl Fn() -> T) -> (T, Duration) {
    let once = || {
        let started = of_thread();
        let done = work();
        (done, of_thread().saturating_sub(started))
    };
    let mut last = once();
    for _ in 1..TRIES {
        if last.1 < BOUND {
            break;
        }
        last = once();
    }
    last
}

/// Time of the processor that this thread has had.
fn of_thread() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.try_into().unwrap(), spent.tv_nsec.try_into().unwrap())
}

/// `{"next":{"next":…}}`, as deep as arguments may be.
fn chain(key: &str, depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, _| json!({ key: inner }))
}

fn nested(keyword: &str, depth: usize, leaf: Value) -> Value {
    (0..depth).fold(leaf, |inner, _| json!({ keyword: [inner] }))
}

/// Definitions of which each refers `width` times to the next: width^levels subschemas once the references are followed.
fn fan(keyword: &str, levels: usize, width: usize) -> Map<String, Value> {
    let level = |n: usize| json!({ keyword: vec![json!({"$ref": format!("#/$defs/d{}", n + 1)}); width] });
    let mut defs: Map<String, Value> = (0..levels).map(|n| (format!("d{n}"), level(n))).collect();
    defs.insert(format!("d{levels}"), json!({"type": "integer"}));
    defs
}
