//! Generated input for three readers: the envelope, streams, and arguments. Inputs are put together from pieces that readers
//! stumble over and from inputs that gave a result of a new kind before; those are kept. A panic ends the process with the
//! input in a file. What is not here: tests with fixed inputs (`toolgate-proposers`).

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{CallForm, ModelDef};
use toolgate_core::json::{Json, read_strict};
use toolgate_core::proposal::{Ballot, BallotVerdict, Proposal, ProposedArgs};
use toolgate_proposers::envelope::parse;
use toolgate_proposers::{Reply, StreamDecoder, decode};

use crate::Error;
use crate::report::Report;

/// Longest input, in bytes.
const MAX_INPUT: usize = 64 << 10;
/// Inputs kept for one reader.
const MAX_KEPT: usize = 400;
/// Longest time one input may take, on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(10);

/// What is read.
#[derive(Debug, Clone, Copy)]
enum Target {
    Envelope,
    Stream,
    Arguments,
}

impl Target {
    const ALL: [Self; 3] = [Self::Envelope, Self::Stream, Self::Arguments];

    const fn name(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Stream => "stream",
            Self::Arguments => "arguments",
        }
    }

    /// What inputs are made of.
    const fn pieces(self) -> &'static [&'static str] {
        match self {
            Self::Envelope => &[
                "{\"type\":\"tool_call\",\"calls\":[",
                "{\"id\":\"1\",\"name\":\"search\",\"args\":{\"query\":\"a\"}}",
                "]}",
                "{\"type\":\"final_answer\",\"output\":",
                "\"x\"}",
                "```json\n",
                "\n```",
                "```",
                "<think>",
                "</think>",
                "{",
                "}",
                "[",
                "]",
                "\"",
                "\\",
                ":",
                ",",
                "null",
                "1e999",
                "18446744073709551616",
                "\\ud800",
                "\"args\":",
                "\"arguments\":",
                "\"name\":",
                "prose ",
                "\n",
                "\u{1f600}",
                "\u{feff}",
                "\u{0}",
                "\"type\":\"tool_call\"",
                "\"output\":1",
                "{\"a\":",
            ],
            Self::Stream => &[
                "data: ",
                "\n\n",
                "\r\n",
                "\r",
                "\n",
                ": keep-alive\n",
                "event: error\n",
                "event: message_stop\n",
                "[DONE]",
                "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}",
                "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"search\",\"arguments\":\"{\\\"query\\\":\"}}]}}]}",
                "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"x\\\"}\"}}]}}]}",
                "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"a\",\"function\":{\"name\":\"get_\",\"arguments\":\"\"}}]}}]}",
                "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"time\",\"arguments\":{}}}]}}]}",
                "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}",
                "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}",
                "{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}",
                "{\"error\":{\"code\":\"429\",\"message\":\"slow\"}}",
                "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}",
                "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"search\",\"input\":{}}}",
                "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"query\\\":1}\"}}",
                "{\"type\":\"content_block_stop\",\"index\":0}",
                "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":2}}",
                "{\"type\":\"message_stop\"}",
                "{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"search\",\"arguments\":\"{}\"}}",
                "{\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}",
                "\u{1f600}",
                "\u{feff}",
                "data",
                "data:",
                "{",
                "}",
                "\"",
            ],
            Self::Arguments => &[
                "{",
                "}",
                "[",
                "]",
                ":",
                ",",
                "\"a\"",
                "\"b\"",
                "\"\"",
                "1",
                "-0",
                "1.0",
                "1e2",
                "1e-7",
                "5e-324",
                "1e999",
                "0.1",
                "9007199254740993",
                "18446744073709551615",
                "18446744073709551616",
                "-9223372036854775808",
                "true",
                "null",
                "NaN",
                "\\ud800",
                "\\ud83d\\ude00",
                "\\u0000",
                "\"\\",
                "\u{e9}",
                "\u{1f600}",
                " ",
                "\n",
                "\t",
                "{\"a\":",
                "[[",
                "]]",
                "'",
                "//",
            ],
        }
    }
}

pub(crate) fn run(seconds: u64, corpus: &Path, seed: Option<u64>) -> Result<Report, Error> {
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut report = Report::default();
    report.count(&format!("seconds each, seed {seed}"), seconds);
    let found: Vec<Result<Found, Error>> = std::thread::scope(|scope| {
        let work = |target: Target| move || fuzz(target, until, &corpus.join(target.name()), seed);
        let threads: Vec<_> = Target::ALL.into_iter().map(|target| scope.spawn(work(target))).collect();
        let lost = |_| Err(Error::Io(std::io::Error::other("a reader panicked; its input is kept in the corpus")));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    });
    for (target, found) in Target::ALL.into_iter().zip(found) {
        let found = found?;
        report.count(&format!("{}: inputs", target.name()), found.inputs);
        report.count(&format!("{}: kinds of results", target.name()), found.kinds.len() as u64);
        report.count(&format!("{}: inputs kept", target.name()), found.kept);
        report.count(
            &format!("{}: longest, in ms", target.name()),
            u64::try_from(found.longest.as_millis()).unwrap_or(u64::MAX),
        );
        found.failures.into_iter().for_each(|failure| report.fail(failure));
        if found.inputs == 0 {
            report.fail(format!("{}: nothing was read", target.name()));
        }
    }
    Ok(report)
}

#[derive(Default)]
struct Found {
    inputs: u64,
    kept: u64,
    kinds: BTreeSet<String>,
    failures: Vec<String>,
    longest: Duration,
}

fn fuzz(target: Target, until: Instant, folder: &Path, seed: u64) -> Result<Found, Error> {
    let fault = |path: &Path| {
        let path: PathBuf = path.to_owned();
        move |error| Error::File(path, error)
    };
    std::fs::create_dir_all(folder).map_err(fault(folder))?;
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).map_err(fault(folder))?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut pool: Vec<Vec<u8>> = Vec::new();
    for path in &paths {
        pool.push(std::fs::read(path).map_err(fault(path))?);
    }
    let reader = Reader::new(target)?;
    let mut rng = Rng::with_seed(seed);
    let mut found = Found { kept: pool.len() as u64, ..Found::default() };
    let known = pool.len();
    loop {
        let at = usize::try_from(found.inputs).unwrap_or(usize::MAX);
        // What is kept is read again first, however little time there is.
        if found.failures.len() >= 20 || (at >= known && Instant::now() >= until) {
            break;
        }
        let input = if at < known { pool.get(at).cloned().unwrap_or_default() } else { make(target, &pool, &mut rng) };
        found.inputs += 1;
        let began = Instant::now();
        let watch = Watch { folder, input: &input };
        let result = reader.read(&input, &mut rng);
        std::mem::forget(watch);
        let took = began.elapsed();
        found.longest = found.longest.max(took);
        if took > MAX_TIME {
            found.failures.push(format!("{}: {} bytes took {took:?}", target.name(), input.len()));
        }
        match result {
            Ok(kind) => {
                if found.kinds.insert(kind) && at >= known && pool.len() < MAX_KEPT {
                    save(folder, &input).map_err(fault(folder))?;
                    found.kept += 1;
                    pool.push(input);
                }
            }
            Err(failure) => {
                save(folder, &input).map_err(fault(folder))?;
                found.failures.push(format!("{}: {failure}: {:?}", target.name(), String::from_utf8_lossy(&input)));
            }
        }
    }
    Ok(found)
}

/// Keeps the input of a reader that panics.
struct Watch<'a> {
    folder: &'a Path,
    input: &'a [u8],
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        drop(save(self.folder, self.input));
    }
}

fn save(folder: &Path, input: &[u8]) -> std::io::Result<()> {
    let name: String = toolgate_core::id::Sha256Digest::of(input).to_string().chars().skip(7).take(16).collect();
    std::fs::File::create(folder.join(name))?.write_all(input)
}

/// A new input: pieces in any order, or a known input with changes.
fn make(target: Target, pool: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let piece = |rng: &mut Rng| rng.choice(target.pieces()).copied().unwrap_or_default().as_bytes();
    let mut input = match rng.choice(pool) {
        Some(known) if rng.u8(..) < 200 => known.clone(),
        _ => {
            let mut input = Vec::new();
            for _ in 0..rng.usize(1..24) {
                input.extend_from_slice(piece(rng));
                if matches!(target, Target::Stream) && rng.u8(..) < 160 {
                    input.extend_from_slice(b"\n\ndata: ");
                }
            }
            input
        }
    };
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..=input.len());
        match rng.u8(0..6) {
            0 => drop(input.splice(at..at, piece(rng).iter().copied())),
            1 => input.truncate(at),
            2 => {
                let end = (at + rng.usize(0..32)).min(input.len());
                input.drain(at..end);
            }
            3 => {
                let end = (at + rng.usize(0..200)).min(input.len());
                let copy: Vec<u8> = input.iter().take(end).skip(at).copied().collect();
                input.splice(at..at, copy);
            }
            4 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = rng.u8(..);
                }
            }
            _ => {
                if let Some(other) = rng.choice(pool) {
                    input.extend_from_slice(other);
                }
            }
        }
    }
    input.truncate(MAX_INPUT);
    input
}

/// Reads inputs and says what kind of result came, or what does not hold.
struct Reader {
    target: Target,
    defs: Vec<ModelDef>,
    ask: Ask,
}

impl Reader {
    fn new(target: Target) -> Result<Self, Error> {
        let def = |provider: &str, form: CallForm| {
            let def = json!({"provider": provider, "base_url": "http://127.0.0.1:9", "model": "m", "lenient": form == CallForm::Auto});
            serde_json::from_value(def)
                .map(|def: ModelDef| ModelDef { calls: form, ..def })
                .map_err(|error| Error::Line("a definition".into(), 0, error))
        };
        let mut defs = Vec::new();
        for provider in ["openai", "anthropic", "openai_responses"] {
            for form in [CallForm::Native, CallForm::Auto] {
                defs.push(def(provider, form)?);
            }
        }
        let ask = Ask {
            instructions: Vec::new(),
            transcript: Vec::new(),
            tools: Vec::new(),
            output_schema: None,
            answers_so_far: 0,
        };
        Ok(Self { target, defs, ask })
    }

    fn read(&self, input: &[u8], rng: &mut Rng) -> Result<String, String> {
        match self.target {
            Target::Envelope => envelope(&String::from_utf8_lossy(input)),
            Target::Stream => self.stream(input, rng),
            Target::Arguments => arguments(&String::from_utf8_lossy(input), &self.ask, self.defs.first()),
        }
    }

    /// However a stream is split, it is the same answer.
    fn stream(&self, input: &[u8], rng: &mut Rng) -> Result<String, String> {
        let mut kind = String::new();
        for def in &self.defs {
            let whole =
                decode(Reply { status: 200, content_type: Some("text/event-stream"), body: input }, &self.ask, def);
            for _ in 0..3 {
                let mut decoder = StreamDecoder::new(def);
                let mut rest = input;
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(rng.usize(1..=rest.len().min(40)));
                    rest = after;
                    if !decoder.push(piece) {
                        break;
                    }
                }
                if decoder.finish(&self.ask, def) != whole {
                    return Err(format!("another answer in pieces, as {:?}", def.provider));
                }
            }
            kind.push_str(&kind_of(&whole));
        }
        Ok(kind)
    }
}

/// The kind of a ballot: its verdict and what was put right.
fn kind_of(ballot: &Ballot) -> String {
    let verdict = match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            let readable = calls.iter().filter(|call| matches!(call.args, ProposedArgs::Readable(_))).count();
            format!("calls {} {}", calls.len().min(3), readable.min(3))
        }
        BallotVerdict::Proposal(Proposal::Done { .. }) => "done".to_owned(),
        BallotVerdict::Malformed { reason, .. } => format!("{reason:?}"),
        BallotVerdict::Failed { reason, .. } => format!("{reason:?}"),
    };
    let notes: BTreeSet<&str> =
        ballot.normalised.iter().map(|note| note.split(':').next().unwrap_or_default()).collect();
    format!("{verdict} {notes:?};")
}

/// What strict mode reads, lenient mode reads, too; reasons are short.
fn envelope(text: &str) -> Result<String, String> {
    let (strict, lenient) = (parse(text, false), parse(text, true));
    let mut kind = String::new();
    for read in [&strict, &lenient] {
        match read {
            Ok(parsed) => {
                let what = match &parsed.proposal {
                    Proposal::Calls(calls) => format!("calls {}", calls.len().min(3)),
                    Proposal::Done { .. } => "done".to_owned(),
                };
                kind.push_str(&format!("{what} {:?};", parsed.normalised.iter().collect::<BTreeSet<_>>()));
            }
            Err(refused) if refused.detail.chars().count() > 400 => {
                return Err("a reason of more than 400 characters".to_owned());
            }
            Err(refused) => kind.push_str(&format!("{:?};", refused.reason)),
        }
    }
    if strict.is_ok() && lenient.is_err() {
        return Err("strict mode reads what lenient mode refuses".to_owned());
    }
    Ok(kind)
}

/// Canonical text is read as itself, and no text is changed on its way to the log.
fn arguments(text: &str, ask: &Ask, def: Option<&ModelDef>) -> Result<String, String> {
    let Some(def) = def else { return Err("no definition".to_owned()) };
    let mut kind = match read_strict(text) {
        Ok(value) => {
            let once = Json::from_value(&value);
            let again =
                Json::parse(once.as_str()).map_err(|fault| format!("canonical text is not read: {fault}: {once}"));
            if again? != once {
                return Err(format!("canonical text is not stable: {once}"));
            }
            if once.hash() != Json::from_value(&once.value()).hash() {
                return Err(format!("another hash: {once}"));
            }
            match value {
                Value::Object(_) => "object".to_owned(),
                Value::Array(_) => "array".to_owned(),
                _ => "scalar".to_owned(),
            }
        }
        Err(fault) => format!("{:?}", fault.kind),
    };
    let function = json!({"name": "f", "arguments": text});
    let message = json!({"content": null, "tool_calls": [{"id": "a", "function": function}]});
    let body = json!({"choices": [{"finish_reason": "tool_calls", "message": message}]}).to_string();
    let ballot = decode(Reply { status: 200, content_type: None, body: body.as_bytes() }, ask, def);
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            let Some(call) = calls.first().filter(|call| call.raw_args == text) else {
                return Err("the text of the arguments is not kept".to_owned());
            };
            if let ProposedArgs::Readable(args) = &call.args
                && !args.value().is_object()
            {
                return Err("arguments that are no object".to_owned());
            }
        }
        other => return Err(format!("no call: {other:?}")),
    }
    kind.push_str(&kind_of(&ballot));
    Ok(kind)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_still_reads_as_it_should() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let report = run(0, &corpus, Some(1)).unwrap();
        let mut shown = Vec::new();
        report.write(&mut shown).unwrap();
        assert!(report.holds(), "{}", String::from_utf8_lossy(&shown));
        for target in Target::ALL {
            assert!(report.counted(&format!("{}: inputs", target.name())) > 5, "{}", target.name());
        }
    }
}
