-- What stands beside the log; the same tables as on PostgreSQL.
CREATE TABLE content_key (
    tenant  TEXT NOT NULL,
    session BLOB NOT NULL,
    key_id  TEXT NOT NULL,
    wrapped BLOB NOT NULL,
    UNIQUE (tenant, session, key_id)
) STRICT;

CREATE TABLE blob (
    tenant  TEXT NOT NULL,
    session BLOB NOT NULL,
    digest  BLOB NOT NULL CHECK (length(digest) = 32),
    key_id  TEXT NOT NULL,
    body    BLOB NOT NULL,
    UNIQUE (tenant, session, digest)
) STRICT;

CREATE TABLE approval (
    tenant       TEXT    NOT NULL,
    session      BLOB    NOT NULL,
    approval     TEXT    NOT NULL,
    call         TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    requested_at INTEGER NOT NULL,
    expires_at   INTEGER,
    settled_at   INTEGER,
    settled_by   TEXT,
    key_id       TEXT    NOT NULL,
    body         BLOB    NOT NULL,
    UNIQUE (tenant, session, approval)
) STRICT;
CREATE INDEX approval_newest ON approval (tenant, requested_at, session, approval);
CREATE INDEX approval_status ON approval (tenant, status, requested_at, session, approval);
CREATE INDEX approval_id ON approval (tenant, approval);

CREATE TABLE inbox (
    tenant      TEXT    NOT NULL,
    session     BLOB    NOT NULL,
    input_id    TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    fingerprint BLOB    NOT NULL,
    key_id      TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    UNIQUE (tenant, session, input_id)
) STRICT;

CREATE TABLE outbox (
    tenant   TEXT    NOT NULL,
    session  BLOB    NOT NULL,
    id       TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    body     BLOB    NOT NULL,
    key_id   TEXT,
    attempts INTEGER NOT NULL,
    due_at   INTEGER NOT NULL,
    UNIQUE (tenant, session, id)
) STRICT;
CREATE INDEX outbox_due ON outbox (due_at);

-- A row without a status is a claim: the request is under way until `expires_at`.
CREATE TABLE idempotency (
    tenant      TEXT    NOT NULL,
    credential  TEXT    NOT NULL,
    route       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    status      INTEGER,
    body        BLOB,
    session     BLOB,
    key_id      TEXT,
    expires_at  INTEGER NOT NULL,
    UNIQUE (tenant, credential, route, key)
) STRICT;
CREATE INDEX idempotency_expiry ON idempotency (expires_at);

CREATE TABLE bundle (
    tenant     TEXT    NOT NULL,
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    body       BLOB    NOT NULL,
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (tenant, digest)
) STRICT;
CREATE TRIGGER bundle_no_update BEFORE UPDATE ON bundle BEGIN SELECT RAISE(ABORT, 'guard:append_only'); END;
CREATE TRIGGER bundle_no_delete BEFORE DELETE ON bundle BEGIN SELECT RAISE(ABORT, 'guard:append_only'); END;

CREATE TABLE bundle_current (
    tenant TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL
) STRICT;

CREATE TABLE api_key (
    key_id        TEXT    NOT NULL UNIQUE,
    tenant        TEXT    NOT NULL,
    secret_digest BLOB    NOT NULL,
    actor         TEXT    NOT NULL,
    scopes        TEXT    NOT NULL,
    label         TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER,
    revoked_at    INTEGER
) STRICT;
CREATE INDEX api_key_tenant ON api_key (tenant, key_id);

CREATE TABLE security_log (
    tenant  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    id      TEXT    NOT NULL,
    code    TEXT    NOT NULL,
    actor   TEXT,
    session BLOB,
    detail  BLOB    NOT NULL,
    UNIQUE (tenant, id)
) STRICT;
CREATE INDEX security_newest ON security_log (tenant, at, id);
CREATE TRIGGER security_no_update BEFORE UPDATE ON security_log BEGIN SELECT RAISE(ABORT, 'guard:append_only'); END;
CREATE TRIGGER security_no_delete BEFORE DELETE ON security_log BEGIN SELECT RAISE(ABORT, 'guard:append_only'); END;
