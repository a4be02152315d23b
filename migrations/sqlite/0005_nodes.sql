-- The same columns and tables as on PostgreSQL, where many nodes share a database. Here one node works alone.
ALTER TABLE node ADD COLUMN protocol INTEGER NOT NULL DEFAULT 1;
ALTER TABLE node ADD COLUMN version TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN started_at INTEGER NOT NULL DEFAULT 0;

CREATE INDEX session_owner ON session (owner, owner_incarnation) WHERE active;

ALTER TABLE inbox ADD COLUMN answer BLOB;
ALTER TABLE inbox ADD COLUMN answer_key TEXT;
ALTER TABLE inbox ADD COLUMN answered_at INTEGER;
CREATE INDEX inbox_waiting ON inbox (tenant, session) WHERE answered_at IS NULL;
CREATE INDEX inbox_answered ON inbox (answered_at) WHERE answered_at IS NOT NULL;

CREATE TABLE hand_over (
    tenant   TEXT    NOT NULL,
    session  BLOB    NOT NULL CHECK (length(session) = 16),
    node     TEXT    NOT NULL,
    asked_at INTEGER NOT NULL,
    refused  INTEGER NOT NULL,
    UNIQUE (tenant, session)
) STRICT;
