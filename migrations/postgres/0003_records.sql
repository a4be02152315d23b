-- What stands beside the log: keys, blobs, approvals, inbox, outbox, idempotency, bundles, API keys, security log.

-- Destroying a key means deleting its row.
CREATE TABLE toolgate.content_key (
    tenant  text COLLATE "C"  NOT NULL,
    session uuid  NOT NULL,
    key_id  text COLLATE "C"  NOT NULL,
    wrapped bytea NOT NULL,
    PRIMARY KEY (tenant, session, key_id)
);

CREATE TABLE toolgate.blob (
    tenant  text COLLATE "C"  NOT NULL,
    session uuid  NOT NULL,
    digest  bytea NOT NULL CHECK (octet_length(digest) = 32),
    key_id  text COLLATE "C"  NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (tenant, session, digest)
);
ALTER TABLE toolgate.blob ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE toolgate.approval (
    tenant       text COLLATE "C"   NOT NULL,
    session      uuid   NOT NULL,
    approval     text COLLATE "C"   NOT NULL,
    call         text COLLATE "C"   NOT NULL,
    status       text COLLATE "C"   NOT NULL,
    requested_at bigint NOT NULL,
    expires_at   bigint,
    settled_at   bigint,
    settled_by   text COLLATE "C",
    key_id       text COLLATE "C"   NOT NULL,
    body         bytea  NOT NULL,
    PRIMARY KEY (tenant, session, approval)
);
CREATE INDEX approval_newest ON toolgate.approval (tenant, requested_at, session, approval);
CREATE INDEX approval_status ON toolgate.approval (tenant, status, requested_at, session, approval);
CREATE INDEX approval_id ON toolgate.approval (tenant, approval);

CREATE TABLE toolgate.inbox (
    tenant      text COLLATE "C"   NOT NULL,
    session     uuid   NOT NULL,
    input_id    text COLLATE "C"   NOT NULL,
    received_at bigint NOT NULL,
    fingerprint bytea  NOT NULL,
    key_id      text COLLATE "C"   NOT NULL,
    body        bytea  NOT NULL,
    PRIMARY KEY (tenant, session, input_id)
);

CREATE TABLE toolgate.outbox (
    tenant   text COLLATE "C"   NOT NULL,
    session  uuid   NOT NULL,
    id       text COLLATE "C"   NOT NULL,
    kind     text COLLATE "C"   NOT NULL,
    body     bytea  NOT NULL,
    key_id   text COLLATE "C",
    attempts bigint NOT NULL,
    due_at   bigint NOT NULL,
    PRIMARY KEY (tenant, session, id)
);
CREATE INDEX outbox_due ON toolgate.outbox (due_at);

-- A row without a status is a claim: the request is under way until `expires_at`.
CREATE TABLE toolgate.idempotency (
    tenant      text COLLATE "C"   NOT NULL,
    credential  text COLLATE "C"   NOT NULL,
    route       text COLLATE "C"   NOT NULL,
    key         text COLLATE "C"   NOT NULL,
    fingerprint bytea  NOT NULL,
    status      bigint,
    body        bytea,
    session     uuid,
    key_id      text COLLATE "C",
    expires_at  bigint NOT NULL,
    PRIMARY KEY (tenant, credential, route, key)
);
CREATE INDEX idempotency_expiry ON toolgate.idempotency (expires_at);

CREATE TABLE toolgate.bundle (
    tenant     text COLLATE "C"   NOT NULL,
    digest     bytea  NOT NULL CHECK (octet_length(digest) = 32),
    body       bytea  NOT NULL,
    created_by text COLLATE "C"   NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, digest)
);

CREATE TABLE toolgate.bundle_current (
    tenant text COLLATE "C"  PRIMARY KEY,
    digest bytea NOT NULL
);

CREATE TABLE toolgate.api_key (
    key_id        text COLLATE "C"   PRIMARY KEY,
    tenant        text COLLATE "C"   NOT NULL,
    secret_digest bytea  NOT NULL,
    actor         text COLLATE "C"   NOT NULL,
    scopes        text COLLATE "C"   NOT NULL,
    label         text COLLATE "C"   NOT NULL,
    created_at    bigint NOT NULL,
    expires_at    bigint,
    revoked_at    bigint
);
CREATE INDEX api_key_tenant ON toolgate.api_key (tenant, key_id);

CREATE TABLE toolgate.security_log (
    tenant  text COLLATE "C"   NOT NULL,
    at      bigint NOT NULL,
    id      text COLLATE "C"   NOT NULL,
    code    text COLLATE "C"   NOT NULL,
    actor   text COLLATE "C",
    session uuid,
    detail  bytea  NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX security_newest ON toolgate.security_log (tenant, at, id);

CREATE TRIGGER security_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON toolgate.security_log
    FOR EACH STATEMENT EXECUTE FUNCTION toolgate.refuse_change();
CREATE TRIGGER bundle_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON toolgate.bundle
    FOR EACH STATEMENT EXECUTE FUNCTION toolgate.refuse_change();
