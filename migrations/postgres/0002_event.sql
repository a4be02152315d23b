-- The log. Header and payload are exact bytes: jsonb would refuse NUL, reorder keys and drop duplicates.
CREATE TABLE toolgate.event (
    tenant           text COLLATE "C"    NOT NULL,
    session          uuid    NOT NULL,
    seq              bigint  NOT NULL CHECK (seq > 0),
    epoch            bigint  NOT NULL CHECK (epoch > 0),
    kind             text COLLATE "C"    NOT NULL,
    run              bigint,
    step             bigint,
    call             text COLLATE "C",
    decision         boolean NOT NULL,
    allow            boolean NOT NULL,
    dispatch_attempt bigint,
    terminal         boolean NOT NULL,
    input_id         text COLLATE "C",
    recorded_at      bigint  NOT NULL,
    header           bytea   NOT NULL,
    payload          bytea   NOT NULL,
    prev_hash        bytea   NOT NULL CHECK (octet_length(prev_hash) = 32),
    hash             bytea   NOT NULL CHECK (octet_length(hash) = 32),
    PRIMARY KEY (tenant, session, seq),
    CHECK (call IS NOT NULL OR NOT (decision OR allow OR terminal OR dispatch_attempt IS NOT NULL))
);

-- The payload is ciphertext: trying to compress it is wasted work.
ALTER TABLE toolgate.event ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX event_input ON toolgate.event (tenant, session, input_id) WHERE input_id IS NOT NULL;
CREATE UNIQUE INDEX event_decision ON toolgate.event (tenant, session, call) WHERE decision;
-- An allow that comes after the decision, by an approval; rare, so the plain step pays nothing for it.
CREATE UNIQUE INDEX event_later_allow ON toolgate.event (tenant, session, call) WHERE allow AND NOT decision;
CREATE UNIQUE INDEX event_dispatch ON toolgate.event (tenant, session, call, dispatch_attempt)
    WHERE dispatch_attempt IS NOT NULL;
CREATE UNIQUE INDEX event_terminal ON toolgate.event (tenant, session, call) WHERE terminal;

CREATE FUNCTION toolgate.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed or removed', TG_TABLE_NAME USING ERRCODE = 'TG006';
END
$$;

CREATE TRIGGER event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON toolgate.event
    FOR EACH STATEMENT EXECUTE FUNCTION toolgate.refuse_change();
