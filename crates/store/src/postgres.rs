//! The store in a PostgreSQL database: a pool whose connections work as the narrowed role. What is not here: the
//! functions that write the log (`migrations/postgres`), and the statements shared with SQLite (`sql`).

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{Connection, Postgres as Driver};

use crate::append::{Append, Appended, Created, NewSession, TakeOver, TakenOver, Write, Wrote};
use crate::cluster::Hints;
use crate::crash;
use crate::error::StoreError;
use crate::ledger::{Posting, Reserved};
use crate::name::NodeId;
use crate::sql::cells::Cells;
use crate::sql::failure::store_error;
use crate::sql::statements::{self, Statements};
use crate::sql::{Database, Refused, SqlStore, Value, detached};

mod append;
mod batch;
mod hints;
mod kept;
mod ledger;
mod plain;
mod settings;

pub use settings::{Risk, Unsafe};

use kept::{Kept, TRUSTED_IDLE};

/// The store in a PostgreSQL database.
pub type PostgresStore = SqlStore<Postgres>;

/// The pools over one PostgreSQL database.
#[derive(Debug, Clone)]
pub struct Postgres {
    kept: Kept,
    /// For what must not wait behind appends: the lease, and the connection that hints arrive on.
    beside: PgPool,
}

/// Connections beside the pool: one for leases, one for hints.
const BESIDE: u32 = 2;

/// How a PostgreSQL database is opened.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The most connections held at the same time; 1 at least.
    pub max_connections: u32,
    /// How long a call waits for a free connection.
    pub acquire_timeout: Duration,
    /// Whether settings under which acknowledged rows may be lost are refused.
    pub unsafe_settings: Unsafe,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { max_connections: 10, acquire_timeout: Duration::from_secs(10), unsafe_settings: Unsafe::Refuse }
    }
}

/// What every connection is set to: the schema of this store and nothing else, and no statement that waits for ever.
const PREPARE: &str = "SELECT set_config('search_path', 'toolgate, pg_temp', false), \
     set_config('statement_timeout', '30s', false), set_config('lock_timeout', '10s', false), \
     set_config('idle_in_transaction_session_timeout', '30s', false)";

/// The role that may write the log only through its functions. Nothing happens where it is not there.
const NARROW: &str = "SELECT set_config('role', rolname, false) FROM pg_catalog.pg_roles \
     WHERE rolname = 'toolgate_app' AND pg_has_role(session_user, oid, 'MEMBER')";

/// That role's name.
const NARROWED: &str = "toolgate_app";

async fn prepare(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(PREPARE).execute(&mut *conn).await?;
    match sqlx::query(NARROW).execute(conn).await {
        // A member that may not work as the role stays who it is; `open` tells.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501") => Ok(()),
        done => done.map(drop),
    }
}

impl SqlStore<Postgres> {
    /// Connects, brings the schema up to date and checks the server's settings.
    ///
    /// The URL's user must own the database or be allowed to create a schema in it; where it may also create roles, the
    /// server's rights are narrowed to reading the log and calling its functions.
    ///
    /// # Errors
    /// [`StoreError::UnsupportedServer`], [`StoreError::UnsafeSetting`], [`StoreError::Migration`]; otherwise as for every call.
    pub async fn open(url: &str, options: &PostgresOptions) -> Result<Self, StoreError> {
        let connect = options_of(url)?;
        let owner = one_connection(connect.clone()).await?;
        settings::check_version(&owner).await?;
        for Risk { setting, value, remedy } in settings::risks(&owner).await? {
            match options.unsafe_settings {
                Unsafe::Refuse => return Err(StoreError::UnsafeSetting { setting, value, remedy }),
                Unsafe::Accept => tracing::warn!(setting, value, remedy, "unsafe database setting accepted"),
            }
        }
        // What the migration finds of rights is only half of the matter; below it is told as it came out.
        sqlx::query("SET client_min_messages = warning").execute(&owner).await.map_err(store_error)?;
        migrate(&owner).await?;
        owner.close().await;
        let most = options.max_connections.max(1);
        let pool = pool(most, options.acquire_timeout).connect_with(connect.clone()).await.map_err(store_error)?;
        let kept = Kept::new(pool, most, options.acquire_timeout);
        let beside = self::pool(BESIDE, options.acquire_timeout).connect_lazy_with(connect);
        let store = Self { database: Postgres { kept, beside } };
        let role = store.connection_role().await?;
        if role != NARROWED {
            tracing::warn!(
                role,
                "the rights on the log are not narrowed: make the role `{NARROWED}` before the first start, and this \
                 user its member"
            );
        }
        Ok(store)
    }

    /// The role that the store's connections work as: `toolgate_app` where the rights could be narrowed.
    pub async fn connection_role(&self) -> Result<String, StoreError> {
        let rows = self.database.read("SELECT current_user::text AS role", Vec::new()).await?;
        rows.first().map_or(Ok(String::new()), |row| row.text("role"))
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.database.beside.close().await;
        self.database.kept.close().await;
    }
}

/// The settings of a server under which acknowledged rows may be lost, as a new connection sees them.
pub async fn durability_risks(url: &str) -> Result<Vec<Risk>, StoreError> {
    let pool = one_connection(options_of(url)?).await?;
    let risks = settings::risks(&pool).await;
    pool.close().await;
    risks
}

fn options_of(url: &str) -> Result<PgConnectOptions, StoreError> {
    // The driver's message would repeat the URL, which may hold a password.
    let options =
        PgConnectOptions::from_str(url).map_err(|_| StoreError::Invalid("the database URL cannot be read"))?;
    Ok(options.application_name("toolgate"))
}

/// A pool whose connections work as the narrowed role.
fn pool(most: u32, acquire_timeout: Duration) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(most)
        .acquire_timeout(acquire_timeout)
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move {
                if meta.idle_for > TRUSTED_IDLE {
                    conn.ping().await?;
                }
                Ok(true)
            })
        })
        .after_connect(|conn, _| Box::pin(prepare(conn)))
}

/// One connection with the rights of the URL's own user.
async fn one_connection(connect: PgConnectOptions) -> Result<PgPool, StoreError> {
    PgPoolOptions::new().max_connections(1).connect_with(connect).await.map_err(store_error)
}

async fn migrate(pool: &PgPool) -> Result<(), StoreError> {
    let mut migrator = sqlx::migrate!("../../migrations/postgres");
    migrator.create_schema("toolgate");
    migrator.dangerous_set_table_name("toolgate.migration");
    crash::in_migration(&migrator, pool).await.map_err(|error| StoreError::Migration(Box::new(error)))?;
    migrator.run(pool).await.map_err(|error| StoreError::Migration(Box::new(error)))
}

type Query = sqlx::query::Query<'static, Driver, PgArguments>;

fn bound(sql: &'static str, values: Vec<Value>) -> Query {
    values.into_iter().fold(sqlx::query(sql), |query, value| match value {
        Value::Int(value) => query.bind(value),
        Value::Flag(value) => query.bind(value),
        Value::Text(value) => query.bind(value),
        Value::Bytes(value) => query.bind(value),
        Value::Key(value) => query.bind(value),
    })
}

impl Database for Postgres {
    type Row = PgRow;

    const STATEMENTS: &'static Statements = &statements::POSTGRES;

    async fn at_once(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<PgRow>, StoreError> {
        let pool = self.beside.clone();
        detached(async move { bound(sql, values).fetch_all(&pool).await.map_err(store_error) }).await?
    }

    async fn hint(&self, nodes: Vec<NodeId>) -> Result<(), StoreError> {
        let kept = self.kept.clone();
        detached(async move { hints::notify(&kept, &nodes).await }).await?
    }

    async fn hints(&self, node: NodeId) -> Result<Option<Box<dyn Hints>>, StoreError> {
        let pool = self.beside.clone();
        detached(async move { hints::listen(&pool, &node).await }).await?.map(Some)
    }

    async fn read(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<PgRow>, StoreError> {
        let kept = self.kept.clone();
        detached(async move { kept.fetch_all(bound(sql, values)).await.map_err(store_error) }).await?
    }

    async fn write(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<PgRow>, StoreError> {
        self.read(sql, values).await
    }

    async fn execute(&self, sql: &'static str, values: Vec<Value>) -> Result<u64, StoreError> {
        let kept = self.kept.clone();
        detached(
            async move { kept.execute(bound(sql, values)).await.map(|done| done.rows_affected()).map_err(store_error) },
        )
        .await?
    }

    async fn append(&self, append: Arc<Append>) -> Result<Appended, Refused> {
        let kept = self.kept.clone();
        detached(async move { append::append(&kept, &append).await }).await?
    }

    async fn write_many(&self, writes: Vec<Write>) -> Vec<Result<Wrote, Refused>> {
        let kept = self.kept.clone();
        let count = writes.len();
        match detached(async move { batch::write_many(&kept, &writes).await }).await {
            Ok(answers) => answers,
            Err(_) => {
                (0..count).map(|_| Err(StoreError::Unavailable("the batch was not finished".into()).into())).collect()
            }
        }
    }

    async fn create(&self, new: Arc<NewSession>) -> Result<Created, Refused> {
        let kept = self.kept.clone();
        detached(async move { append::create(&kept, &new).await }).await?
    }

    async fn take_over(&self, take_over: Arc<TakeOver>) -> Result<TakenOver, StoreError> {
        let kept = self.kept.clone();
        detached(async move { append::take_over(&kept, &take_over).await }).await?
    }

    async fn post(&self, posting: Posting) -> Result<Reserved, StoreError> {
        let kept = self.kept.clone();
        detached(async move { ledger::post(&kept, &posting).await }).await?
    }
}
