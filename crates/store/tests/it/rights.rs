//! What the store says about the rights of its connections is what holds. What is not here: what the rights forbid
//! (`append_only`).

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use toolgate_store::PostgresStore;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::backend::{at_cluster, empty_database, options};

/// Keeps the text of everything that is said on this thread.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Heard {
    fn about_rights(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.contains("rights") || line.contains("toolgate_app")).cloned().collect()
    }
}

/// An owner of a fresh database that may create no roles; its name and its URL.
async fn owner(in_role: bool) -> (String, String) {
    let url = empty_database().await;
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    let user = format!("rights_{database}");
    at_cluster(format!("CREATE ROLE {user} LOGIN; ALTER DATABASE {database} OWNER TO {user}")).await;
    if in_role {
        // Another test's database may be making the role at this moment.
        at_cluster(format!(
            "DO $$ BEGIN CREATE ROLE toolgate_app NOLOGIN; \
             EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$; GRANT toolgate_app TO {user}"
        ))
        .await;
    }
    let url = url.replace("postgres@", &format!("{user}@"));
    (user, url)
}

async fn opened(url: &str) -> (PostgresStore, Vec<String>) {
    let heard = Heard::default();
    let _listening = tracing::subscriber::set_default(heard.clone());
    let store = PostgresStore::open(url, &options()).await.unwrap();
    (store, heard.about_rights())
}

#[tokio::test]
async fn an_owner_that_is_a_member_of_the_role_hears_no_complaint() {
    let (user, url) = owner(true).await;
    for _ in 0..2 {
        let (store, said) = opened(&url).await;
        assert_eq!(store.connection_role().await.unwrap(), "toolgate_app", "{user}");
        assert_eq!(said, Vec::<String>::new());
        store.close().await;
    }
}

#[tokio::test]
async fn an_owner_without_the_role_is_told_at_every_start() {
    let (user, url) = owner(false).await;
    for _ in 0..2 {
        let (store, said) = opened(&url).await;
        assert_eq!(store.connection_role().await.unwrap(), user);
        assert_eq!(said.len(), 1, "{said:?}");
        let line = &said[0];
        assert!(line.starts_with("WARN") && line.contains("not narrowed") && line.contains(&user), "{line}");
        store.close().await;
    }
}
