//! Hints between nodes by NOTIFY on one channel per node, without content. What is not here: what a hint is about; whoever
//! gets one looks into the tables.

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgListener, PgPool};

use super::kept::Kept;
use crate::cluster::Hints;
use crate::error::StoreError;
use crate::name::NodeId;
use crate::sql::failure::store_error;

/// The channel of a node: names of nodes may hold what names of channels may not.
fn channel(node: &NodeId) -> String {
    let digest = hex::encode(Sha256::digest(node.as_str().as_bytes()));
    format!("toolgate_{}", digest.get(..32).unwrap_or(&digest))
}

/// Wakes nodes with one statement.
pub(super) async fn notify(kept: &Kept, nodes: &[NodeId]) -> Result<(), StoreError> {
    let channels: Vec<String> = nodes.iter().map(channel).collect();
    let sql = "SELECT pg_notify(c, '') FROM unnest($1::text[]) AS c";
    kept.execute(sqlx::query(sql).bind(channels)).await.map(drop).map_err(store_error)
}

/// Listens on the channel of a node.
pub(super) async fn listen(pool: &PgPool, node: &NodeId) -> Result<Box<dyn Hints>, StoreError> {
    let mut listener = PgListener::connect_with(pool).await.map_err(store_error)?;
    listener.listen(&channel(node)).await.map_err(store_error)?;
    Ok(Box::new(Listening(listener)))
}

#[derive(Debug)]
struct Listening(PgListener);

#[async_trait]
impl Hints for Listening {
    async fn next(&mut self) -> Result<(), StoreError> {
        match self.0.try_recv().await {
            Ok(Some(_)) => Ok(()),
            // The connection was lost and comes again with the next call.
            Ok(None) => Err(StoreError::Unavailable("the connection for hints was lost".into())),
            Err(error) => Err(store_error(error)),
        }
    }
}
