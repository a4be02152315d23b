//! A road to whichever database is the primary: one address that stays when the primary changes, as a balancer or a moved
//! address gives it. What is not here: who is the primary (`database`).

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The road. It ends with its owner.
#[derive(Debug)]
pub struct Road {
    port: u16,
    /// The port it leads to.
    target: watch::Sender<u16>,
    task: JoinHandle<()>,
}

impl Road {
    /// A road to a port of this machine.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let target = watch::Sender::new(port);
        let turning = target.clone();
        let task = tokio::spawn(async move {
            loop {
                let Ok((mut near, _)) = listener.accept().await else { continue };
                let mut turned = turning.subscribe();
                tokio::spawn(async move {
                    let to = *turned.borrow_and_update();
                    let carried = async {
                        let mut far = TcpStream::connect(("127.0.0.1", to)).await?;
                        copy_bidirectional(&mut near, &mut far).await
                    };
                    tokio::select! {
                        _ = turned.changed() => {}
                        _ = carried => {}
                    }
                });
            }
        });
        Self { port: own, target, task }
    }

    /// Where it begins.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Leads elsewhere from now on; whoever is on it has to begin again.
    pub fn turn(&self, port: u16) {
        self.target.send_replace(port);
    }
}

impl Drop for Road {
    fn drop(&mut self) {
        self.task.abort();
    }
}
