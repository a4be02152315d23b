//! Fills a database with copies of a session that the server has written: rows of its own size under ids of their own, in
//! the order in which a server would have drawn them. What is not here: sessions that anybody reads; a copy is sealed for
//! the first one's id.

use std::time::Instant;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

/// Rows of a session that are copied: its beginning.
const ROWS: i64 = 3;

/// Ids like those of UUID version 7, of an hour ago, one each millisecond or so.
const IDS: &str = "CREATE TABLE public.bulk AS SELECT i, \
    (lpad(to_hex((extract(epoch FROM now())::bigint - 3600) * 1000 + i), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8' || \
    substr(md5(i::text), 4, 15))::uuid AS id FROM generate_series(1, $1) AS i";

/// Copies the first session so often. Says what that came to.
pub(super) async fn fill(url: &str, sessions: i64) -> String {
    let began = Instant::now();
    let mut connection = PgConnection::connect(url).await.expect("the database answers");
    sqlx::query(AssertSqlSafe(IDS)).bind(sessions).execute(&mut connection).await.expect("ids are made");
    let pattern =
        "CREATE TABLE public.pattern AS SELECT * FROM toolgate.session WHERE NOT active ORDER BY session LIMIT 1";
    connection.execute(pattern).await.expect("a session is there");
    copy(&mut connection, "session", "true").await;
    copy(&mut connection, "content_key", "true").await;
    copy(&mut connection, "event", &format!("t.seq <= {ROWS}")).await;
    connection.execute("DROP TABLE public.bulk, public.pattern").await.expect("they are gone");
    for sql in [
        "VACUUM (ANALYZE) toolgate.session",
        "VACUUM (ANALYZE) toolgate.event",
        "VACUUM (ANALYZE) toolgate.content_key",
        "ANALYZE",
        "CHECKPOINT",
    ] {
        connection.execute(sql).await.expect("the tables are tidied");
    }
    let sizes = "SELECT pg_table_size('toolgate.event')::float8, pg_indexes_size('toolgate.event')::float8, \
        pg_total_relation_size('toolgate.session')::float8, (SELECT count(*) FROM toolgate.event)::float8";
    let row = connection.fetch_one(sizes).await.expect("sizes");
    let mib = |column: usize| row.get::<f64, _>(column) / 1_048_576.0;
    format!(
        "{:.0} events, {:.0} MiB and {:.0} MiB of indexes, sessions {:.0} MiB; {:.0} s",
        row.get::<f64, _>(3),
        mib(0),
        mib(1),
        mib(2),
        began.elapsed().as_secs_f64()
    )
}

/// Copies the pattern's rows of a table under every id.
async fn copy(connection: &mut PgConnection, table: &str, only: &str) {
    let sql = "SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'toolgate' AND table_name = $1 \
        ORDER BY ordinal_position";
    let rows = sqlx::query(sql).bind(table).fetch_all(&mut *connection).await.expect("columns");
    let columns: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let values: Vec<String> = columns
        .iter()
        .map(|column| match column.as_str() {
            "session" => "b.id".to_owned(),
            "created_at" | "updated_at" | "recorded_at" => format!("t.{column} - 3600000000 + b.i * 1000"),
            other => format!("t.{other}"),
        })
        .collect();
    let sql = format!(
        "INSERT INTO toolgate.{table} ({}) SELECT {} FROM public.bulk b CROSS JOIN toolgate.{table} t \
         WHERE t.session = (SELECT session FROM public.pattern) AND {only} ORDER BY b.i",
        columns.join(", "),
        values.join(", ")
    );
    connection.execute(AssertSqlSafe(sql)).await.expect("rows are copied");
}
