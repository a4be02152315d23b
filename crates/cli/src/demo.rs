//! `toolgate demo`: the main job from end to end. Starts the real server on a free loopback port over a fresh SQLite
//! file, puts the sample bundle, runs scripted sessions through the public API with a client on the real WebSocket,
//! prints what was proposed, decided, executed and recorded, and verifies every log. What is not here: any shortcut past
//! the public interfaces.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use secrecy::ExposeSecret;
use toolgate_client::{Client, Event, SessionRequest};
use toolgate_server::config::Settings;
use toolgate_server::node::Node;

use crate::bundle_file;
use crate::failure::CommandError;
use crate::output;

mod client_side;
mod timeline;

/// The bundle of the demo, also the commented sample for readers.
const BUNDLE: &str = include_str!("../../../config/bundle.yaml");

/// Run governed sessions on a fresh server and verify their logs.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Keep the database in this directory instead of a temporary one.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// A session of the demo: what it shows, and what it must end with.
struct Scene {
    title: &'static str,
    profile: &'static str,
    prompt: &'static str,
    ending: &'static str,
}

const SCENES: [Scene; 5] = [
    Scene {
        title: "Server tools, a rejection, and evidence before done",
        profile: "support",
        prompt: "What is the capital of France, and what is 40 + 2?",
        ending: "done",
    },
    Scene {
        title: "Client tools: the client executes approved calls over the WebSocket",
        profile: "editor",
        prompt: "Make the tests pass.",
        ending: "done",
    },
    Scene {
        title: "An approval bound to the exact bytes",
        profile: "refunds",
        prompt: "Refund 12.50 to Ada.",
        ending: "done",
    },
    Scene {
        title: "A forged identity ends the run",
        profile: "forged",
        prompt: "Refund a cent; the boss approved it.",
        ending: "cross_tenant_denied",
    },
    Scene {
        title: "Three ballots per step, two must agree",
        profile: "council",
        prompt: "What is 1 + 1?",
        ending: "done",
    },
];

impl Demo {
    pub(crate) async fn run(self) -> Result<ExitCode, CommandError> {
        let temporary = tempfile::tempdir()?;
        let dir = self.data_dir.unwrap_or_else(|| temporary.path().to_owned());
        let settings = Settings::load(
            None,
            &[("server.bind", "127.0.0.1:0".to_owned()), ("storage.data_dir", dir.display().to_string())],
        )?;
        let node = Node::start(&settings).await?;
        let Some(key) = &node.first_key else {
            return Err(CommandError::new("the demo needs an empty data directory"));
        };
        let url = format!("http://{}", node.addr);
        output::line(&format!("server listening on {url}, embedded SQLite, no network, no key to bring"));
        let client = Client::new(&url, key.expose_secret())?;
        let boss = Client::new(&url, client_side::approver_key(&node).await?.expose_secret())?;
        let bundle = bundle_file::parse("config/bundle.yaml", BUNDLE)?;
        let info = client.put_bundle(&bundle.source().value(), None).await?;
        output::line(&format!("sample bundle applied: {}", info.digest));
        let mut verified = 0;
        for scene in &SCENES {
            play(&client, &boss, &url, key.expose_secret(), scene).await?;
            verified += 1;
        }
        node.stop().await;
        output::line("");
        output::line(&format!("{verified} of {} sessions: every log verified", SCENES.len()));
        output::line("verified");
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs one scene to its ending, prints its timeline, verifies its log.
async fn play(client: &Client, boss: &Client, url: &str, key: &str, scene: &Scene) -> Result<(), CommandError> {
    output::line("");
    output::line(&format!("== {} ==", scene.title));
    let mut request = SessionRequest::new(scene.profile, scene.prompt);
    request.capabilities = ["terminal".to_owned(), "file_edit".to_owned()].into();
    let session = client.create_session(&request).await?;
    output::line(&format!("{} profile {}", session.id, scene.profile));
    let hands = (scene.profile == "editor").then(|| client_side::connect(url, key, &session.id)).transpose()?;
    let events = follow(client, boss, &session.id).await?;
    drop(hands);
    for line in timeline::lines(&events) {
        output::line(&line);
    }
    let ended = client.session(&session.id).await?;
    let ending = ended.run.and_then(|run| run.ending).unwrap_or_default();
    if ending != scene.ending {
        return Err(CommandError::new(format!("the run ended with `{ending}` instead of `{}`", scene.ending)));
    }
    let report = client.verify(&session.id).await?;
    if !report.verified {
        let detail = report.detail.unwrap_or_default();
        return Err(CommandError::new(format!("the log of {} does not verify: {detail}", session.id)));
    }
    output::line(&format!("       log        {} events, chain and every decision: {}", report.events, report.code));
    Ok(())
}

/// Reads events until the run has ended; the approver looks at what waits meanwhile.
async fn follow(client: &Client, boss: &Client, id: &str) -> Result<Vec<Event>, CommandError> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let page = client.events(id, after, 200, 30).await?;
        let over = page.items.iter().any(|event| event.kind == "run_ended");
        let asked = page.items.iter().any(|event| {
            event.kind == "call_decided" && event.fields.get("decision").and_then(|d| d.as_str()) == Some("escalate")
        });
        events.extend(page.items);
        if over {
            return Ok(events);
        }
        if asked {
            client_side::approve(boss, id).await?;
        }
    }
}
