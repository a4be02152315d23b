-- States of sessions, as on PostgreSQL.
CREATE TABLE snapshot (
    tenant  TEXT    NOT NULL,
    session BLOB    NOT NULL CHECK (length(session) = 16),
    seq     INTEGER NOT NULL CHECK (seq > 0),
    hash    BLOB    NOT NULL CHECK (length(hash) = 32),
    form    TEXT    NOT NULL,
    key_id  TEXT    NOT NULL,
    state   BLOB    NOT NULL,
    UNIQUE (tenant, session)
);
