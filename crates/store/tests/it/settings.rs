//! Settings under which acknowledged rows may be lost are refused, with the setting's name and the mend.

use toolgate_store::{PostgresOptions, PostgresStore, StoreError, Unsafe, durability_risks};

use crate::backend::{at_cluster, cluster, empty_database, options};

fn strict() -> PostgresOptions {
    PostgresOptions { unsafe_settings: Unsafe::Refuse, ..options() }
}

#[tokio::test]
async fn unsafe_settings_are_refused_by_name() {
    // The throw-away cluster runs without fsync: exactly what must not be accepted.
    let url = empty_database().await;
    let error = PostgresStore::open(&url, &strict()).await.unwrap_err();
    let StoreError::UnsafeSetting { setting, value, remedy } = &error else { panic!("{error:?}") };
    assert_eq!((*setting, value.as_str()), ("fsync", "off"));
    assert!(remedy.contains("fsync = on"), "{remedy}");
    assert!(error.to_string().contains("`fsync` = `off`"), "{error}");
    // Nothing was set up on the way.
    let name = url.rsplit_once('/').unwrap().1.to_owned();
    let database = crate::backend::Raw::Postgres(url.clone());
    let backend = crate::backend::Backend { store: crate::backend::Backend::memory().store, raw: database };
    assert!(backend.operator("SELECT 1 FROM toolgate.session").await.is_err(), "{name}");

    PostgresStore::open(&url, &options()).await.unwrap();
}

#[tokio::test]
async fn a_database_without_synchronous_commit_is_refused() {
    let url = empty_database().await;
    let name = url.rsplit_once('/').unwrap().1.to_owned();
    at_cluster(format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
    let settings = durability_risks(&url).await.unwrap();
    let names: Vec<_> = settings.iter().map(|risk| risk.setting).collect();
    assert_eq!(names, ["fsync", "full_page_writes", "synchronous_commit"]);

    at_cluster(format!("ALTER DATABASE {name} SET synchronous_commit = on")).await;
    let settings = durability_risks(&url).await.unwrap();
    let names: Vec<_> = settings.iter().map(|risk| risk.setting).collect();
    assert_eq!(names, ["fsync", "full_page_writes"]);
}

#[tokio::test]
async fn nobody_at_the_address_is_unavailable() {
    let error = PostgresStore::open("postgres://postgres@127.0.0.1:1/none", &options()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)) && error.is_retryable(), "{error:?}");
    let error = PostgresStore::open("no url", &options()).await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid(_)), "{error:?}");
    assert!(!cluster().is_empty());
}

#[tokio::test]
async fn several_nodes_may_migrate_at_once() {
    let url = empty_database().await;
    let mut starts = Vec::new();
    for _ in 0..4 {
        let url = url.clone();
        starts.push(tokio::spawn(async move { PostgresStore::open(&url, &options()).await.map(drop) }));
    }
    for start in starts {
        start.await.unwrap().unwrap();
    }
}
