//! Logs read back through the API, as pages and as lines, beside the bare reading of the same ranges. What is not here:
//! sessions that are resumed (`resume`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::bound::{Bound, Figures, median};
use crate::database;
use crate::server::Server;

/// Sessions that are read.
const SESSIONS: usize = 3_000;
/// Times that they are read in each way.
const ROUNDS: usize = 3;
/// Rows of a page.
const PAGE: i64 = 1_000;
/// Readers at once: one, and many.
const AT_ONCE: [usize; 2] = [1, 8];

/// A way of reading a session.
#[derive(Debug, Clone, Copy)]
enum Way {
    Bare,
    Page,
    Lines,
}

/// Reads the same sessions in all ways, in turn.
pub(super) async fn run(server: &Server, ids: &[String], figures: &mut Figures) {
    let ids: Arc<[String]> = ids.iter().take(SESSIONS).cloned().collect();
    for at_once in AT_ONCE {
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (way, rates) in [Way::Bare, Way::Page, Way::Lines].into_iter().zip(&mut rates) {
                rates.push(rate(server, &ids, way, at_once).await);
            }
        }
        let [bare, page, lines] = rates.map(|rates| median(rates.into_iter()));
        println!("{at_once} at once: bare {bare:.0} events/s, pages {page:.0}, lines {lines:.0}");
        let what = |form| format!("replay as {form} over the bare read, {at_once} at once");
        if at_once == 1 {
            figures.bounded(what("pages"), page / bare, Bound::AtLeast(0.30));
        } else {
            figures.shown(what("pages"), page / bare);
        }
        figures.shown(what("lines"), lines / bare);
    }
}

/// Events a second.
async fn rate(server: &Server, ids: &Arc<[String]>, way: Way, at_once: usize) -> f64 {
    let next = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    for _ in 0..at_once {
        let connection = database::connect(&server.database_url).await;
        readers.push(Reader { ids: Arc::clone(ids), next: Arc::clone(&next), way, connection, http: Http::to(server) });
    }
    let began = Instant::now();
    let reading: Vec<_> = readers.into_iter().map(|reader| tokio::spawn(reader.read())).collect();
    let mut events = 0;
    for reader in reading {
        events += reader.await.expect("a reader ends");
    }
    assert!(events > ids.len() * 10, "{events} events were read");
    events as f64 / began.elapsed().as_secs_f64()
}

struct Http {
    client: reqwest::Client,
    url: String,
    key: String,
}

impl Http {
    fn to(server: &Server) -> Self {
        let client = reqwest::Client::builder().tcp_nodelay(true).build().expect("a client");
        Self { client, url: server.url.clone(), key: server.key.clone() }
    }

    /// The events of a session, of which each has this field once at its beginning.
    async fn events(&self, id: &str, query: &str, accept: &str) -> usize {
        let url = format!("{}/v1/sessions/{id}/events?{query}", self.url);
        let request = self.client.get(url).bearer_auth(&self.key).header("accept", accept);
        let answer = request.send().await.expect("the server answers");
        assert!(answer.status().is_success(), "{}", answer.status());
        let body = answer.bytes().await.expect("a body");
        String::from_utf8_lossy(&body).matches("{\"seq\":").count()
    }
}

struct Reader {
    ids: Arc<[String]>,
    next: Arc<AtomicUsize>,
    way: Way,
    connection: PgConnection,
    http: Http,
}

impl Reader {
    async fn read(mut self) -> usize {
        let mut events = 0;
        while let Some(id) = self.ids.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            events += match self.way {
                Way::Bare => bare(&mut self.connection, id).await,
                Way::Page => self.http.events(id, &format!("limit={PAGE}"), "application/json").await,
                Way::Lines => self.http.events(id, "follow=false", "application/x-ndjson").await,
            };
        }
        events
    }
}

async fn bare(connection: &mut PgConnection, id: &str) -> usize {
    let session = Uuid::try_parse(id.trim_start_matches("ses_")).expect("an id");
    let sql =
        "SELECT * FROM toolgate.event WHERE tenant = 'default' AND session = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    let query = sqlx::query(sql).bind(session).bind(0_i64).bind(PAGE);
    let rows = query.fetch_all(connection).await.expect("rows are read");
    rows.iter().filter(|row| !row.get::<&[u8], _>("header").is_empty()).count()
}
