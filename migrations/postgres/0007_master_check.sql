-- What proves, at start, that a server has the master key that this database was written with: a keyed hash, one row.
CREATE TABLE toolgate.master_check (
    one   bigint PRIMARY KEY CHECK (one = 1),
    value bytea  NOT NULL CHECK (octet_length(value) = 32)
);

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'toolgate_app') THEN
        GRANT SELECT, INSERT ON toolgate.master_check TO toolgate_app;
    END IF;
END
$$;
