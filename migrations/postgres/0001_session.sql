-- Sessions: who owns one, where its log ends, and what lists show.
-- Everything lives in one schema and is named with it, so that no search path can stand something else in its place.
CREATE SCHEMA IF NOT EXISTS toolgate;

CREATE TABLE toolgate.session (
    tenant            text COLLATE "C"    NOT NULL,
    session           uuid    NOT NULL,
    alias             text COLLATE "C",
    body_fingerprint  bytea   NOT NULL,
    bundle            bytea   NOT NULL,
    created_at        bigint  NOT NULL,
    epoch             bigint  NOT NULL CHECK (epoch > 0),
    owner             text COLLATE "C",
    owner_incarnation bigint,
    head_seq          bigint  NOT NULL CHECK (head_seq >= 0),
    head_hash         bytea   NOT NULL CHECK (octet_length(head_hash) = 32),
    closed            boolean NOT NULL,
    status            text COLLATE "C"    NOT NULL,
    active            boolean NOT NULL,
    profile           text COLLATE "C",
    ending            text COLLATE "C",
    pending_approvals bigint  NOT NULL,
    updated_at        bigint  NOT NULL,
    next_wake_at      bigint,
    title             bytea,
    title_key         text COLLATE "C",
    PRIMARY KEY (tenant, session)
) WITH (fillfactor = 70); -- the row changes with every append: leave room for it on its page

CREATE UNIQUE INDEX session_alias ON toolgate.session (tenant, alias) WHERE alias IS NOT NULL;
CREATE INDEX session_newest ON toolgate.session (tenant, created_at, session);
CREATE INDEX session_active ON toolgate.session (tenant, session) WHERE active;
CREATE INDEX session_due ON toolgate.session (next_wake_at) WHERE next_wake_at IS NOT NULL;

CREATE TABLE toolgate.node (
    node        text COLLATE "C"    PRIMARY KEY,
    incarnation bigint  NOT NULL,
    lease_until bigint  NOT NULL,
    draining    boolean NOT NULL
);
