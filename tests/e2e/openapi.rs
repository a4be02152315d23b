//! The document against the running server, both ways. That every answer of every test fits the document is checked
//! where the tests ask (`toolgate_tests::contract`).

use std::collections::BTreeSet;

use reqwest::Method;
use toolgate_tests::contract::{CONTRACT, METHODS};
use toolgate_tests::{Backend, Caller, TestServer};

/// A path of this template, with ids that have the right form and name nothing.
fn concrete(template: &str) -> String {
    let digest = format!("sha256:{}", "0".repeat(64));
    let id = match template {
        _ if template.contains("/approvals/") => format!("apr_{}", "0".repeat(32)),
        _ if template.contains("/api-keys/") => "0".repeat(16),
        _ => "ses_018f3c7a000070008000000000000001".to_owned(),
    };
    template.replace("{id}", &id).replace("{digest}", &digest)
}

#[tokio::test]
async fn every_documented_operation_is_served_and_no_other_method() {
    let server = TestServer::start(Backend::Sqlite).await;
    let nobody = Caller::new(server.url(), "nobody".to_owned());
    let operations = CONTRACT.operations();
    let paths: BTreeSet<&String> = operations.iter().map(|(_, path)| path).collect();
    for path in paths {
        for method in METHODS {
            let documented = operations.contains(&(method.to_owned(), path.clone()));
            let request =
                nobody.request(Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap(), &concrete(path));
            let answer = Caller::send(request).await;
            let expected = match (documented, path.starts_with("/v1/")) {
                (true, true) => 401,
                (true, false) => 200,
                (false, _) => 405,
            };
            let answer = answer.expect(expected);
            if !documented {
                let allow = answer.headers["allow"].to_str().unwrap().to_ascii_lowercase();
                let allowed: BTreeSet<&str> = allow.split(',').map(str::trim).filter(|m| *m != "head").collect();
                let known: BTreeSet<&str> =
                    METHODS.into_iter().filter(|m| operations.contains(&((*m).to_owned(), path.clone()))).collect();
                assert_eq!(allowed, known, "{path}");
            }
        }
    }
    server.stop().await;
}

#[test]
fn every_route_in_the_code_is_documented() {
    // Whoever adds a route writes its path as a literal; only the channel, which is no plain HTTP, and the
    // operators' listener are documented elsewhere.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/server/src");
    let mut open = vec![std::path::PathBuf::from(root)];
    let mut found = BTreeSet::new();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for marker in ["path = \"/", ".route(\"/"] {
                for rest in text.split(marker).skip(1) {
                    found.insert(format!("/{}", rest.split('"').next().unwrap()));
                }
            }
        }
    }
    let documented: BTreeSet<String> = CONTRACT.operations().into_iter().map(|(_, path)| path).collect();
    for elsewhere in ["/v1/channel", "/metrics"] {
        assert!(found.remove(elsewhere), "{elsewhere} has moved: {found:?}");
    }
    assert_eq!(found, documented);
}
