//! The statements about nodes that each database spells its own way: the clock, and lists of sessions. What is not here:
//! what they are for (`cluster`).

/// The statements of one database.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) start: &'static str,
    pub(crate) renew: &'static str,
    pub(crate) leave: &'static str,
    pub(crate) nodes: &'static str,
    pub(crate) orphans: &'static str,
    pub(crate) ask: &'static str,
    pub(crate) release: &'static str,
    pub(crate) heads: &'static str,
}

/// `$now` is the clock of the database in microseconds; `$asked` makes rows `k` of tenant, session and number from the
/// JSON list of lists in `$1`; `$owned` joins nodes `n` with what they own from incarnations below `n.below`, at most `$3` each.
macro_rules! statements {
    ($now:literal, $asked:literal, $owned:literal) => {
        Statements {
            start: concat!(
                "INSERT INTO node (node, incarnation, lease_until, draining, protocol, version, started_at) ",
                "VALUES ($1, 1, ", $now, " + $2, $3, $4, $5, ", $now, ") ON CONFLICT (node) DO UPDATE SET ",
                "incarnation = node.incarnation + 1, lease_until = excluded.lease_until, draining = excluded.draining, ",
                "protocol = excluded.protocol, version = excluded.version, started_at = excluded.started_at ",
                "RETURNING incarnation"
            ),
            renew: concat!(
                "UPDATE node SET lease_until = ", $now, " + $3 WHERE node = $1 AND incarnation = $2 RETURNING draining"
            ),
            leave: concat!("UPDATE node SET lease_until = ", $now, " WHERE node = $1 AND incarnation = $2"),
            nodes: concat!("SELECT n.*, n.lease_until - ", $now, " AS left_us FROM node n ORDER BY n.node LIMIT $1"),
            // Owners are looked up by index, node by node: a node with many live neighbours reads none of theirs. The orders
            // ask for nothing that is needed; they tell the planner which index holds the few rows it looks for.
            orphans: concat!(
                "WITH alive AS (SELECT node, incarnation FROM node WHERE lease_until > ", $now, "), lost AS ( ",
                "SELECT * FROM (SELECT s.tenant, s.session FROM session s WHERE s.active AND s.owner IS NULL ",
                "ORDER BY s.owner, s.owner_incarnation LIMIT $3) a ",
                "UNION SELECT * FROM (SELECT s.tenant, s.session FROM (SELECT n.node, n.incarnation + ",
                "CASE WHEN n.lease_until <= ", $now, " THEN 1 ELSE 0 END AS below FROM node n) n ", $owned, " LIMIT $3) b ",
                "UNION SELECT * FROM (SELECT s.tenant, s.session FROM session s WHERE s.next_wake_at <= $2 AND NOT EXISTS ",
                "(SELECT 1 FROM alive n WHERE n.node = s.owner AND n.incarnation = s.owner_incarnation) ",
                "ORDER BY s.next_wake_at LIMIT $3) d ",
                "UNION SELECT * FROM (SELECT DISTINCT s.tenant, s.session FROM inbox i JOIN session s ",
                "ON s.tenant = i.tenant AND s.session = i.session WHERE i.answered_at IS NULL AND NOT EXISTS ",
                "(SELECT 1 FROM alive n WHERE n.node = s.owner AND n.incarnation = s.owner_incarnation) LIMIT $3) e) ",
                "SELECT l.tenant, l.session FROM lost l WHERE NOT EXISTS (SELECT 1 FROM hand_over h WHERE h.tenant = l.tenant ",
                "AND h.session = l.session AND h.node <> $1 AND NOT h.refused AND h.asked_at > ", $now, " - $4)"
            ),
            ask: concat!(
                "INSERT INTO hand_over (tenant, session, node, asked_at, refused) SELECT $1, $2, $3, ", $now, ", $4 ",
                "WHERE EXISTS (SELECT 1 FROM session s WHERE s.tenant = $1 AND s.session = $2) ",
                "ON CONFLICT (tenant, session) DO UPDATE SET node = excluded.node, asked_at = excluded.asked_at, ",
                "refused = excluded.refused"
            ),
            release: concat!(
                "UPDATE session SET owner = NULL, owner_incarnation = NULL FROM ", $asked,
                " WHERE session.tenant = k.tenant AND session.session = k.session AND session.epoch = k.number"
            ),
            heads: concat!(
                "SELECT s.tenant, s.session, s.head_seq FROM ", $asked,
                " JOIN session s ON s.tenant = k.tenant AND s.session = k.session"
            ),
        }
    };
}

/// Those of PostgreSQL.
pub(crate) const POSTGRES: Statements = statements!(
    "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "(SELECT (j.value->>0)::text COLLATE \"C\" AS tenant, (j.value->>1)::uuid AS session, (j.value->>2)::bigint AS number \
     FROM jsonb_array_elements($1::text::jsonb) AS j(value)) k",
    "CROSS JOIN LATERAL (SELECT o.tenant, o.session FROM session o WHERE o.active AND o.owner = n.node \
     AND o.owner_incarnation < n.below ORDER BY o.owner_incarnation LIMIT $3) s"
);

/// Those of SQLite.
pub(crate) const SQLITE: Statements = statements!(
    "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
    "(SELECT j.value ->> 0 AS tenant, unhex(j.value ->> 1, '-') AS session, j.value ->> 2 AS number \
     FROM json_each($1) j) k",
    "JOIN session s ON s.active AND s.owner = n.node AND s.owner_incarnation < n.below"
);
