//! WebSockets that have said hello and are silent from then on. What is not here: what they could be told (`fanout`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{LONG, settled, slope, start};
use crate::bundle;
use crate::server::Server;
use crate::socket;

/// Connections that a server lets one tenant have.
const PER_TENANT: usize = 200;

/// Bytes of one more connection.
pub(super) async fn measured(program: &Path, cluster: &str, at: [usize; 2]) -> f64 {
    let server = start(program, cluster, bundle::over_at_once(), LONG).await;
    let mut keys = Vec::new();
    for tenant in 0..at[1].div_ceil(PER_TENANT) {
        keys.push(server.tenant_key(&format!("tenant-{tenant}")).await);
    }
    let lost = Arc::new(AtomicUsize::new(0));
    let mut seen = Vec::new();
    let mut opened = 0;
    for count in at {
        while opened < count {
            connect(&server, &keys[opened / PER_TENANT], opened, &lost).await;
            opened += 1;
        }
        let resident = settled(&server).await;
        println!("idle WebSockets: {count}, {resident:.1} MiB");
        seen.push(resident);
    }
    assert_eq!(lost.load(Ordering::Relaxed), 0, "no connection is lost");
    server.stop().await;
    slope(&seen, at)
}

async fn connect(server: &Server, key: &str, no: usize, lost: &Arc<AtomicUsize>) {
    let mut socket = socket::open(&server.url, key, &format!("client-{no}"), None).await;
    let lost = Arc::clone(lost);
    // Reading answers the server's pings.
    tokio::spawn(async move {
        while socket.next().await.is_some() {}
        lost.fetch_add(1, Ordering::Relaxed);
    });
}
