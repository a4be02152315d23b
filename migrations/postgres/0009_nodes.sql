-- Many nodes over one database: leases judged by this server's clock, answers to inputs that change nothing, requests to
-- hand a session over.
ALTER TABLE toolgate.node
    ADD COLUMN protocol   bigint NOT NULL DEFAULT 1,
    ADD COLUMN version    text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN started_at bigint NOT NULL DEFAULT 0;

-- Whose sessions must move when a node is gone. An append changes none of these columns while work is under way.
CREATE INDEX session_owner ON toolgate.session (owner, owner_incarnation) WHERE active;

-- An input that left no record is answered here, for whoever brought it to another node.
ALTER TABLE toolgate.inbox
    ADD COLUMN answer      bytea,
    ADD COLUMN answer_key  text COLLATE "C",
    ADD COLUMN answered_at bigint;
CREATE INDEX inbox_waiting ON toolgate.inbox (tenant, session) WHERE answered_at IS NULL;
CREATE INDEX inbox_answered ON toolgate.inbox (answered_at) WHERE answered_at IS NOT NULL;

CREATE TABLE toolgate.hand_over (
    tenant   text COLLATE "C" NOT NULL,
    session  uuid    NOT NULL,
    node     text COLLATE "C" NOT NULL,
    asked_at bigint  NOT NULL,
    refused  boolean NOT NULL,
    PRIMARY KEY (tenant, session)
);

-- Makes a node the owner and appends its `owner_changed` row, unless the owner is another node whose lease runs. Answers
-- ok, already, stale, owned or no_session.
CREATE OR REPLACE FUNCTION toolgate.take_over(
    p_tenant text, p_session uuid, p_owner text, p_incarnation bigint, p_seq bigint, p_epoch bigint, p_kind text, p_input text,
    p_at bigint, p_header bytea, p_payload bytea, p_prev bytea, p_hash bytea,
    OUT outcome text, OUT head bigint, OUT at_epoch bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s record;
BEGIN
    UPDATE toolgate.session t SET epoch = p_epoch, owner = p_owner, owner_incarnation = p_incarnation, head_seq = p_seq,
        head_hash = p_hash, updated_at = p_at
    WHERE t.tenant = p_tenant AND t.session = p_session AND t.epoch = p_epoch - 1 AND t.head_seq = p_seq - 1
        AND t.head_hash = p_prev AND NOT t.closed
        AND NOT EXISTS (SELECT 1 FROM toolgate.node n WHERE n.node = t.owner AND n.incarnation = t.owner_incarnation
            AND n.node <> p_owner AND n.lease_until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    IF FOUND THEN
        INSERT INTO toolgate.event VALUES (p_tenant, p_session, p_seq, p_epoch, p_kind, NULL, NULL, NULL, false, false, NULL,
            false, p_input, p_at, p_header, p_payload, p_prev, p_hash);
        DELETE FROM toolgate.hand_over h WHERE h.tenant = p_tenant AND h.session = p_session;
        outcome := 'ok';
        head := p_seq;
        at_epoch := p_epoch;
        RETURN;
    END IF;
    SELECT t.epoch, t.head_seq, t.head_hash, t.closed, t.owner, t.owner_incarnation INTO s
        FROM toolgate.session t WHERE t.tenant = p_tenant AND t.session = p_session;
    IF NOT FOUND THEN
        outcome := 'no_session';
        RETURN;
    END IF;
    head := s.head_seq;
    at_epoch := s.epoch;
    IF s.epoch = p_epoch AND s.owner = p_owner AND s.owner_incarnation = p_incarnation AND EXISTS (
        SELECT 1 FROM toolgate.event e WHERE e.tenant = p_tenant AND e.session = p_session AND e.seq = p_seq
            AND e.epoch = p_epoch AND e.hash = p_hash AND e.header = p_header AND e.payload = p_payload
    ) THEN
        outcome := 'already';
    ELSIF s.closed THEN
        RAISE EXCEPTION 'the session is closed' USING ERRCODE = 'TG005';
    ELSIF s.epoch = p_epoch - 1 AND s.head_seq = p_seq - 1 AND s.head_hash = p_prev THEN
        outcome := 'owned';
    ELSE
        outcome := 'stale';
    END IF;
END
$$;

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'toolgate_app') THEN
        GRANT UPDATE, DELETE ON toolgate.inbox TO toolgate_app;
        GRANT SELECT, INSERT, UPDATE, DELETE ON toolgate.hand_over TO toolgate_app;
    END IF;
END
$$;
