//! A TCP proxy with a fixed address, so that connections can be cut and servers can move.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on to wherever it points.
pub(super) struct Proxy {
    pub(super) url: String,
    target: Arc<Mutex<Option<SocketAddr>>>,
    cuts: watch::Sender<u64>,
}

impl Proxy {
    pub(super) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = Arc::new(Mutex::new(Some(target)));
        let cuts = watch::Sender::new(0);
        tokio::spawn(accept(listener, Arc::clone(&target), cuts.clone()));
        Self { url, target, cuts }
    }

    /// Breaks every connection; new ones go to `target`, or are broken at once if there is none.
    pub(super) fn cut(&self, target: Option<SocketAddr>) {
        *self.target.lock().unwrap() = target;
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn accept(listener: TcpListener, target: Arc<Mutex<Option<SocketAddr>>>, cuts: watch::Sender<u64>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let mut cut = cuts.subscribe();
        let target = *target.lock().unwrap();
        tokio::spawn(async move {
            let Some(target) = target else { return };
            let Ok(mut server) = TcpStream::connect(target).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                _ = cut.changed() => {}
            }
        });
    }
}
