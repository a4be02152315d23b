//! A balancer before the nodes: a connection goes to one of them by chance, and to another when that one does not answer.
//! Clients of the channel come through it, so that their sessions have to follow them. What is not here: requests, which
//! choose their node themselves (`outside`).

use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Connections at once.
const MOST: usize = 512;

/// Starts it; its address, and the task that ends with it.
pub async fn start(nodes: Vec<String>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let places = Arc::new(Semaphore::new(MOST));
    let nodes: Arc<[String]> = nodes.into();
    let task = tokio::spawn(async move {
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((mut outer, _)) = listener.accept().await else { continue };
            let nodes = Arc::clone(&nodes);
            tokio::spawn(async move {
                let first = fastrand::usize(..nodes.len());
                for node in nodes.iter().cycle().skip(first).take(nodes.len()) {
                    if let Ok(mut inner) = TcpStream::connect(node).await {
                        // Either side may be cut off; that is what this is for.
                        let _ = copy_bidirectional(&mut outer, &mut inner).await;
                        break;
                    }
                }
                drop(place);
            });
        }
    });
    (address, task)
}
