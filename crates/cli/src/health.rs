//! `toolgate health`: asks a server whether it takes requests, for container images that have no shell. What is not here:
//! what the answer depends on (`toolgate-server`).

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::CommandError;
use crate::output;

/// Time for the whole question.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer that hold its status.
const STATUS_BYTES: usize = 12;

/// Ask whether a server takes requests; exit code 0 when it does.
#[derive(Debug, Args)]
pub(crate) struct Health {
    /// Host and port, without TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8420")]
    address: String,
}

impl Health {
    pub(crate) async fn run(self) -> Result<ExitCode, CommandError> {
        let late = |_| CommandError::new(format!("`{}` does not answer in time", self.address));
        let status = timeout(PATIENCE, self.ask()).await.map_err(late)??;
        if status == b"HTTP/1.1 200" {
            output::line("ready");
            return Ok(ExitCode::SUCCESS);
        }
        Err(CommandError::new(format!("`{}` is not ready: {}", self.address, String::from_utf8_lossy(&status))))
    }

    /// The first bytes of the answer to `GET /readyz`.
    async fn ask(&self) -> Result<Vec<u8>, CommandError> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        let mut status = vec![0; STATUS_BYTES];
        stream.read_exact(&mut status).await?;
        Ok(status)
    }
}
