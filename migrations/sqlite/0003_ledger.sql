-- The ledger: what a whole tenant has spent over all its sessions; the same tables as on PostgreSQL.
CREATE TABLE ledger_counter (
    tenant       TEXT    NOT NULL,
    counter      TEXT    NOT NULL,
    window_start INTEGER NOT NULL CHECK (window_start >= 0),
    used         INTEGER NOT NULL CHECK (used >= 0),
    UNIQUE (tenant, counter, window_start)
) STRICT;
CREATE INDEX ledger_counter_window ON ledger_counter (window_start) WHERE window_start > 0;

CREATE TABLE ledger_reservation (
    tenant      TEXT    NOT NULL,
    session     BLOB    NOT NULL,
    key         TEXT    NOT NULL,
    reserved_at INTEGER NOT NULL,
    settled_at  INTEGER,
    UNIQUE (tenant, session, key)
) STRICT;
CREATE INDEX ledger_reservation_settled ON ledger_reservation (settled_at) WHERE settled_at IS NOT NULL;

CREATE TABLE ledger_charge (
    tenant       TEXT    NOT NULL,
    session      BLOB    NOT NULL,
    key          TEXT    NOT NULL,
    counter      TEXT    NOT NULL,
    window_start INTEGER NOT NULL,
    amount       INTEGER NOT NULL CHECK (amount >= 0),
    UNIQUE (tenant, session, key, counter, window_start),
    FOREIGN KEY (tenant, session, key) REFERENCES ledger_reservation (tenant, session, key) ON DELETE CASCADE
) STRICT;
