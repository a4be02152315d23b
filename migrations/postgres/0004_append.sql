-- The writes of the log, each one statement for the caller: it runs in autocommit, so no client can leave a transaction open.
-- They run with the rights of their owner; the role of the server itself may not write the log in any other way.
--
-- Own error codes: TG001 dispatch without allow, TG002 dispatch after the terminal record, TG003 terminal record without
-- decision, TG004 later allow without a decision that left it open, TG005 session closed, TG006 rows are never changed,
-- TG007 idempotency key answered or used with another body.

-- Appends rows and all that belongs to them. Answers ok, already (the same bytes were applied before), stale, fenced or no_session.
CREATE FUNCTION toolgate.append(
    p_tenant text, p_session uuid, p_epoch bigint, p_expected bigint,
    p_kind text[], p_run bigint[], p_step bigint[], p_call text[],
    p_decision boolean[], p_allow boolean[], p_dispatch bigint[], p_terminal boolean[],
    p_input text[], p_at bigint[], p_header bytea[], p_payload bytea[],
    p_prev bytea[], p_hash bytea[], p_status text, p_active boolean,
    p_profile text, p_ending text, p_pending bigint, p_updated bigint,
    p_wake bigint, p_title bytea, p_title_key text, p_consumed text[],
    p_idem text[], p_idem_fingerprint bytea, p_idem_status bigint, p_idem_body bytea,
    p_idem_session uuid, p_idem_key text, p_idem_expires bigint, p_out_id text[],
    p_out_kind text[], p_out_body bytea[], p_out_key text[], p_out_attempts bigint[],
    p_out_due bigint[], p_apr_id text[], p_apr_call text[], p_apr_status text[],
    p_apr_requested bigint[], p_apr_expires bigint[], p_apr_settled bigint[], p_apr_by text[],
    p_apr_key text[], p_apr_body bytea[], p_blob_digest bytea[], p_blob_key text[],
    p_blob_body bytea[], p_key_id text[], p_key_wrapped bytea[], p_key_gone text[],
    p_sec_id text[], p_sec_at bigint[], p_sec_code text[], p_sec_actor text[],
    p_sec_session uuid[], p_sec_detail bytea[],
    OUT outcome text, OUT head bigint, OUT at_epoch bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n constant bigint := cardinality(p_kind);
    late constant text[] := ARRAY['late_outcome', 'outcome_refused', 'erased'];
    s record;
    found_rows bigint;
BEGIN
    -- The fence: taking the row lock and comparing epoch, head and closing are one step.
    UPDATE toolgate.session SET
        head_seq = p_expected + n,
        head_hash = CASE WHEN n > 0 THEN p_hash[n] ELSE head_hash END,
        closed = closed OR 'session_closed' = ANY (p_kind),
        status = p_status, active = p_active, profile = p_profile, ending = p_ending, pending_approvals = p_pending,
        updated_at = p_updated, next_wake_at = p_wake, title = p_title, title_key = p_title_key
    WHERE tenant = p_tenant AND session = p_session AND epoch = p_epoch AND head_seq = p_expected
        AND (n = 0 OR head_hash = p_prev[1]) AND (NOT closed OR p_kind <@ late);

    IF NOT FOUND THEN
        SELECT t.epoch, t.head_seq, t.head_hash, t.closed INTO s
            FROM toolgate.session t WHERE t.tenant = p_tenant AND t.session = p_session;
        IF NOT FOUND THEN
            outcome := 'no_session';
            RETURN;
        END IF;
        head := s.head_seq;
        at_epoch := s.epoch;
        IF s.epoch <> p_epoch THEN
            outcome := 'fenced';
        ELSIF s.head_seq = p_expected AND (n = 0 OR s.head_hash = p_prev[1]) AND s.closed THEN
            RAISE EXCEPTION 'the session is closed' USING ERRCODE = 'TG005';
        ELSE
            SELECT count(*) INTO found_rows
                FROM unnest(p_header, p_payload, p_hash) WITH ORDINALITY AS r (header, payload, hash, nth)
                JOIN toolgate.event e ON e.tenant = p_tenant AND e.session = p_session AND e.seq = p_expected + r.nth
                WHERE e.epoch = p_epoch AND e.hash = r.hash AND e.header = r.header AND e.payload = r.payload;
            outcome := CASE WHEN n > 0 AND found_rows = n THEN 'already' ELSE 'stale' END;
        END IF;
        RETURN;
    END IF;

    INSERT INTO toolgate.event
        SELECT p_tenant, p_session, p_expected + r.nth, p_epoch, r.kind, r.run, r.step, r.call, r.decision, r.allow,
            r.dispatch, r.terminal, r.input, r.at, r.header, r.payload, r.prev, r.hash
        FROM unnest(p_kind, p_run, p_step, p_call, p_decision, p_allow, p_dispatch, p_terminal, p_input, p_at, p_header,
            p_payload, p_prev, p_hash) WITH ORDINALITY
            AS r (kind, run, step, call, decision, allow, dispatch, terminal, input, at, header, payload, prev, hash, nth);

    IF true = ANY (p_terminal) OR true = ANY (p_allow) OR cardinality(array_remove(p_dispatch, NULL)) > 0 THEN
        FOR s IN
            SELECT r.call, r.decision, r.allow, r.dispatch, r.terminal, p_expected + r.nth AS seq
            FROM unnest(p_call, p_decision, p_allow, p_dispatch, p_terminal) WITH ORDINALITY
                AS r (call, decision, allow, dispatch, terminal, nth)
            WHERE r.allow OR r.terminal OR r.dispatch IS NOT NULL
        LOOP
            IF s.dispatch IS NOT NULL AND NOT s.allow AND NOT EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = p_tenant AND e.session = p_session AND e.call = s.call
                    AND e.decision AND e.allow AND e.seq < s.seq
            ) AND NOT EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = p_tenant AND e.session = p_session AND e.call = s.call
                    AND e.allow AND NOT e.decision AND e.seq < s.seq
            ) THEN
                RAISE EXCEPTION 'dispatch without allow' USING ERRCODE = 'TG001';
            END IF;
            IF s.dispatch IS NOT NULL AND EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = p_tenant AND e.session = p_session AND e.call = s.call
                    AND e.terminal AND e.seq < s.seq
            ) THEN
                RAISE EXCEPTION 'dispatch after the terminal record' USING ERRCODE = 'TG002';
            END IF;
            IF s.terminal AND NOT s.decision AND NOT EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = p_tenant AND e.session = p_session AND e.call = s.call
                    AND e.decision AND e.seq < s.seq
            ) THEN
                RAISE EXCEPTION 'terminal record without decision' USING ERRCODE = 'TG003';
            END IF;
            IF s.allow AND NOT s.decision AND NOT EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = p_tenant AND e.session = p_session AND e.call = s.call
                    AND e.decision AND NOT e.allow AND e.seq < s.seq
            ) THEN
                RAISE EXCEPTION 'later allow without an open decision' USING ERRCODE = 'TG004';
            END IF;
        END LOOP;
    END IF;

    IF cardinality(p_consumed) > 0 THEN
        DELETE FROM toolgate.inbox i WHERE i.tenant = p_tenant AND i.session = p_session AND i.input_id = ANY (p_consumed);
    END IF;
    IF cardinality(p_idem) = 3 THEN
        INSERT INTO toolgate.idempotency AS i
            VALUES (p_tenant, p_idem[1], p_idem[2], p_idem[3], p_idem_fingerprint, p_idem_status, p_idem_body, p_idem_session,
                p_idem_key, p_idem_expires)
            ON CONFLICT (tenant, credential, route, key) DO UPDATE SET status = excluded.status, body = excluded.body,
                session = excluded.session, key_id = excluded.key_id, expires_at = excluded.expires_at
            WHERE i.status IS NULL AND i.fingerprint = excluded.fingerprint;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'idempotency key answered or used with another body' USING ERRCODE = 'TG007';
        END IF;
    END IF;
    IF cardinality(p_key_id) > 0 THEN
        INSERT INTO toolgate.content_key SELECT p_tenant, p_session, k.id, k.wrapped FROM unnest(p_key_id, p_key_wrapped) AS k (id, wrapped);
    END IF;
    IF cardinality(p_key_gone) > 0 THEN
        DELETE FROM toolgate.content_key k WHERE k.tenant = p_tenant AND k.session = p_session AND k.key_id = ANY (p_key_gone);
    END IF;
    IF cardinality(p_blob_digest) > 0 THEN
        INSERT INTO toolgate.blob
            SELECT p_tenant, p_session, b.digest, b.key_id, b.body
            FROM unnest(p_blob_digest, p_blob_key, p_blob_body) AS b (digest, key_id, body)
            ON CONFLICT (tenant, session, digest) DO NOTHING;
    END IF;
    IF cardinality(p_apr_id) > 0 THEN
        INSERT INTO toolgate.approval
            SELECT p_tenant, p_session, a.id, a.call, a.status, a.requested, a.expires, a.settled, a.by, a.key_id, a.body
            FROM unnest(p_apr_id, p_apr_call, p_apr_status, p_apr_requested, p_apr_expires, p_apr_settled, p_apr_by, p_apr_key,
                p_apr_body) AS a (id, call, status, requested, expires, settled, by, key_id, body)
            ON CONFLICT (tenant, session, approval) DO UPDATE SET call = excluded.call, status = excluded.status,
                requested_at = excluded.requested_at, expires_at = excluded.expires_at, settled_at = excluded.settled_at,
                settled_by = excluded.settled_by, key_id = excluded.key_id, body = excluded.body;
    END IF;
    IF cardinality(p_out_id) > 0 THEN
        INSERT INTO toolgate.outbox
            SELECT p_tenant, p_session, o.id, o.kind, o.body, o.key_id, o.attempts, o.due
            FROM unnest(p_out_id, p_out_kind, p_out_body, p_out_key, p_out_attempts, p_out_due)
                AS o (id, kind, body, key_id, attempts, due)
            ON CONFLICT (tenant, session, id) DO NOTHING;
    END IF;
    IF cardinality(p_sec_id) > 0 THEN
        INSERT INTO toolgate.security_log
            SELECT p_tenant, l.at, l.id, l.code, l.actor, l.session, l.detail
            FROM unnest(p_sec_id, p_sec_at, p_sec_code, p_sec_actor, p_sec_session, p_sec_detail)
                AS l (id, at, code, actor, session, detail)
            ON CONFLICT (tenant, id) DO NOTHING;
    END IF;

    outcome := 'ok';
    head := p_expected + n;
    at_epoch := p_epoch;
END
$$;

-- Creates a session with its first rows. Answers ok, already, exists (the id is taken) or alias (the alias is taken).
CREATE FUNCTION toolgate.create_session(
    p_alias text, p_body_fingerprint bytea, p_bundle bytea, p_created bigint, p_owner text, p_incarnation bigint,
    p_tenant text, p_session uuid, p_epoch bigint, p_expected bigint,
    p_kind text[], p_run bigint[], p_step bigint[], p_call text[],
    p_decision boolean[], p_allow boolean[], p_dispatch bigint[], p_terminal boolean[],
    p_input text[], p_at bigint[], p_header bytea[], p_payload bytea[],
    p_prev bytea[], p_hash bytea[], p_status text, p_active boolean,
    p_profile text, p_ending text, p_pending bigint, p_updated bigint,
    p_wake bigint, p_title bytea, p_title_key text, p_consumed text[],
    p_idem text[], p_idem_fingerprint bytea, p_idem_status bigint, p_idem_body bytea,
    p_idem_session uuid, p_idem_key text, p_idem_expires bigint, p_out_id text[],
    p_out_kind text[], p_out_body bytea[], p_out_key text[], p_out_attempts bigint[],
    p_out_due bigint[], p_apr_id text[], p_apr_call text[], p_apr_status text[],
    p_apr_requested bigint[], p_apr_expires bigint[], p_apr_settled bigint[], p_apr_by text[],
    p_apr_key text[], p_apr_body bytea[], p_blob_digest bytea[], p_blob_key text[],
    p_blob_body bytea[], p_key_id text[], p_key_wrapped bytea[], p_key_gone text[],
    p_sec_id text[], p_sec_at bigint[], p_sec_code text[], p_sec_actor text[],
    p_sec_session uuid[], p_sec_detail bytea[],
    OUT outcome text, OUT head bigint, OUT at_epoch bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a record;
BEGIN
    INSERT INTO toolgate.session (tenant, session, alias, body_fingerprint, bundle, created_at, epoch, owner, owner_incarnation,
            head_seq, head_hash, closed, status, active, pending_approvals, updated_at)
        VALUES (p_tenant, p_session, p_alias, p_body_fingerprint, p_bundle, p_created, 1, p_owner, p_incarnation,
            0, decode(repeat('00', 32), 'hex'), false, p_status, p_active, p_pending, p_updated)
        ON CONFLICT DO NOTHING;
    IF FOUND THEN
        SELECT * INTO a FROM toolgate.append(
            p_tenant, p_session, p_epoch, p_expected, p_kind, p_run, p_step, p_call,
            p_decision, p_allow, p_dispatch, p_terminal, p_input, p_at, p_header, p_payload,
            p_prev, p_hash, p_status, p_active, p_profile, p_ending, p_pending, p_updated,
            p_wake, p_title, p_title_key, p_consumed, p_idem, p_idem_fingerprint, p_idem_status, p_idem_body,
            p_idem_session, p_idem_key, p_idem_expires, p_out_id, p_out_kind, p_out_body, p_out_key, p_out_attempts,
            p_out_due, p_apr_id, p_apr_call, p_apr_status, p_apr_requested, p_apr_expires, p_apr_settled, p_apr_by,
            p_apr_key, p_apr_body, p_blob_digest, p_blob_key, p_blob_body, p_key_id, p_key_wrapped, p_key_gone,
            p_sec_id, p_sec_at, p_sec_code, p_sec_actor, p_sec_session, p_sec_detail
        );
        outcome := a.outcome;
        head := a.head;
        at_epoch := a.at_epoch;
        RETURN;
    END IF;
    SELECT t.epoch, t.head_seq INTO a FROM toolgate.session t WHERE t.tenant = p_tenant AND t.session = p_session;
    IF FOUND THEN
        head := a.head_seq;
        at_epoch := a.epoch;
        -- The reply to the first attempt may have been lost long ago: compare the first rows whatever came after them.
        outcome := CASE WHEN cardinality(p_hash) = (
            SELECT count(*) FROM unnest(p_hash, p_payload) WITH ORDINALITY AS r (hash, payload, nth)
            JOIN toolgate.event e ON e.tenant = p_tenant AND e.session = p_session AND e.seq = r.nth
            WHERE e.hash = r.hash AND e.payload = r.payload
        ) THEN 'already' ELSE 'exists' END;
    ELSE
        outcome := 'alias';
    END IF;
END
$$;

-- Makes a node the owner and appends its `owner_changed` row. Answers ok, already, stale or no_session.
CREATE FUNCTION toolgate.take_over(
    p_tenant text, p_session uuid, p_owner text, p_incarnation bigint, p_seq bigint, p_epoch bigint, p_kind text, p_input text,
    p_at bigint, p_header bytea, p_payload bytea, p_prev bytea, p_hash bytea,
    OUT outcome text, OUT head bigint, OUT at_epoch bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s record;
BEGIN
    UPDATE toolgate.session SET epoch = p_epoch, owner = p_owner, owner_incarnation = p_incarnation, head_seq = p_seq,
        head_hash = p_hash, updated_at = p_at
    WHERE tenant = p_tenant AND session = p_session AND epoch = p_epoch - 1 AND head_seq = p_seq - 1 AND head_hash = p_prev
        AND NOT closed;
    IF FOUND THEN
        INSERT INTO toolgate.event VALUES (p_tenant, p_session, p_seq, p_epoch, p_kind, NULL, NULL, NULL, false, false, NULL,
            false, p_input, p_at, p_header, p_payload, p_prev, p_hash);
        outcome := 'ok';
        head := p_seq;
        at_epoch := p_epoch;
        RETURN;
    END IF;
    SELECT t.epoch, t.head_seq, t.closed, t.owner, t.owner_incarnation INTO s
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
    ELSE
        outcome := 'stale';
    END IF;
END
$$;
