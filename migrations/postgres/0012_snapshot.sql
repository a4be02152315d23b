-- States of sessions, so that a long log is not read from its beginning each time. A cache: rows may be removed at any time.
CREATE TABLE toolgate.snapshot (
    tenant  text COLLATE "C" NOT NULL,
    session uuid   NOT NULL,
    seq     bigint NOT NULL CHECK (seq > 0),
    hash    bytea  NOT NULL CHECK (octet_length(hash) = 32),
    form    text COLLATE "C" NOT NULL,
    key_id  text COLLATE "C" NOT NULL,
    state   bytea  NOT NULL,
    PRIMARY KEY (tenant, session)
);

-- The state is ciphertext: trying to compress it is wasted work.
ALTER TABLE toolgate.snapshot ALTER COLUMN state SET STORAGE EXTERNAL;

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'toolgate_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON toolgate.snapshot TO toolgate_app;
    END IF;
END
$$;
