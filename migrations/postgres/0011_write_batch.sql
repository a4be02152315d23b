-- Writes of many sessions in one statement, with one flush: what `append_batch` takes, and besides new sessions without an
-- alias, and answers to requests. Nodes of the version before call `append_batch` still.
--
-- Answers the places, from 1, of the writes that were applied. The others did not fit (another epoch, another head, a closed
-- session, a session that exists): nothing of them was applied, and `append` and `create_session` say why. A rule that is
-- broken, an input that is known or a key that has its answer fails the whole statement. One statement names each session once.
CREATE FUNCTION toolgate.write_batch(
    p_tenant text[], p_session uuid[], p_epoch bigint[], p_expected bigint[], p_rows bigint[], p_prev bytea[], p_hash bytea[],
    p_closing boolean[], p_late boolean[], p_status text[], p_active boolean[], p_profile text[], p_ending text[],
    p_pending bigint[], p_updated bigint[], p_wake bigint[], p_title bytea[], p_title_key text[],
    c_of bigint[], c_fingerprint bytea[], c_bundle bytea[], c_created bigint[], c_owner text[], c_incarnation bigint[],
    r_of bigint[], r_tenant text[], r_session uuid[], r_seq bigint[], r_epoch bigint[], r_kind text[], r_run bigint[],
    r_step bigint[], r_call text[], r_decision boolean[], r_allow boolean[], r_dispatch bigint[], r_terminal boolean[],
    r_input text[], r_at bigint[], r_header bytea[], r_payload bytea[], r_prev bytea[], r_hash bytea[],
    k_of bigint[], k_tenant text[], k_session uuid[], k_id text[], k_wrapped bytea[],
    i_of bigint[], i_credential text[], i_route text[], i_key text[], i_fingerprint bytea[], i_status bigint[], i_body bytea[],
    i_session uuid[], i_key_id text[], i_expires bigint[]
) RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    applied bigint[];
    fault text;
    answered bigint;
BEGIN
    IF cardinality(c_of) > 0 THEN
        INSERT INTO toolgate.session (tenant, session, body_fingerprint, bundle, created_at, epoch, owner, owner_incarnation,
                head_seq, head_hash, closed, status, active, pending_approvals, updated_at)
            SELECT p_tenant[c.of], p_session[c.of], c.fingerprint, c.bundle, c.created, 1, c.owner, c.incarnation,
                0, decode(repeat('00', 32), 'hex'), false, p_status[c.of], p_active[c.of], 0, p_updated[c.of]
            FROM unnest(c_of, c_fingerprint, c_bundle, c_created, c_owner, c_incarnation)
                AS c (of, fingerprint, bundle, created, owner, incarnation)
            ON CONFLICT DO NOTHING;
    END IF;

    -- The fence, as in `append`: taking the row locks and comparing epoch, head and closing are one step.
    WITH moved AS (
        UPDATE toolgate.session s SET
            head_seq = a.expected + a.n,
            head_hash = CASE WHEN a.n > 0 THEN a.hash ELSE s.head_hash END,
            closed = s.closed OR a.closing,
            status = a.status, active = a.active, profile = a.profile, ending = a.ending, pending_approvals = a.pending,
            updated_at = a.updated, next_wake_at = a.wake, title = a.title, title_key = a.title_key
        FROM unnest(p_tenant, p_session, p_epoch, p_expected, p_rows, p_prev, p_hash, p_closing, p_late, p_status, p_active,
            p_profile, p_ending, p_pending, p_updated, p_wake, p_title, p_title_key) WITH ORDINALITY
            AS a (tenant, session, epoch, expected, n, prev, hash, closing, late, status, active, profile, ending, pending,
                updated, wake, title, title_key, nth)
        WHERE s.tenant = a.tenant AND s.session = a.session AND s.epoch = a.epoch AND s.head_seq = a.expected
            AND (a.n = 0 OR s.head_hash = a.prev) AND (NOT s.closed OR a.late)
        RETURNING a.nth
    )
    SELECT coalesce(array_agg(moved.nth), '{}') INTO applied FROM moved;

    INSERT INTO toolgate.event
        SELECT r.tenant, r.session, r.seq, r.epoch, r.kind, r.run, r.step, r.call, r.decision, r.allow, r.dispatch, r.terminal,
            r.input, r.at, r.header, r.payload, r.prev, r.hash
        FROM unnest(r_of, r_tenant, r_session, r_seq, r_epoch, r_kind, r_run, r_step, r_call, r_decision, r_allow, r_dispatch,
            r_terminal, r_input, r_at, r_header, r_payload, r_prev, r_hash)
            AS r (of, tenant, session, seq, epoch, kind, run, step, call, decision, allow, dispatch, terminal, input, at,
                header, payload, prev, hash)
        WHERE cardinality(applied) = cardinality(p_session) OR r.of = ANY (applied);

    -- The rules on calls, as in `append`.
    SELECT r.fault INTO fault FROM (
        SELECT CASE
            WHEN r.dispatch IS NOT NULL AND NOT r.allow AND NOT EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = r.tenant AND e.session = r.session AND e.call = r.call
                    AND e.decision AND e.allow AND e.seq < r.seq
            ) AND NOT EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = r.tenant AND e.session = r.session AND e.call = r.call
                    AND e.allow AND NOT e.decision AND e.seq < r.seq
            ) THEN 'TG001'
            WHEN r.dispatch IS NOT NULL AND EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = r.tenant AND e.session = r.session AND e.call = r.call
                    AND e.terminal AND e.seq < r.seq
            ) THEN 'TG002'
            WHEN r.terminal AND NOT r.decision AND NOT EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = r.tenant AND e.session = r.session AND e.call = r.call
                    AND e.decision AND e.seq < r.seq
            ) THEN 'TG003'
            WHEN r.allow AND NOT r.decision AND NOT EXISTS (
                SELECT 1 FROM toolgate.event e WHERE e.tenant = r.tenant AND e.session = r.session AND e.call = r.call
                    AND e.decision AND NOT e.allow AND e.seq < r.seq
            ) THEN 'TG004'
        END AS fault
        FROM unnest(r_of, r_tenant, r_session, r_seq, r_call, r_decision, r_allow, r_dispatch, r_terminal)
            AS r (of, tenant, session, seq, call, decision, allow, dispatch, terminal)
        WHERE (r.allow OR r.terminal OR r.dispatch IS NOT NULL)
            AND (cardinality(applied) = cardinality(p_session) OR r.of = ANY (applied))
    ) r WHERE r.fault IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a rule on calls is broken' USING ERRCODE = fault;
    END IF;

    IF cardinality(k_id) > 0 THEN
        INSERT INTO toolgate.content_key
            SELECT k.tenant, k.session, k.id, k.wrapped
            FROM unnest(k_of, k_tenant, k_session, k_id, k_wrapped) AS k (of, tenant, session, id, wrapped)
            WHERE k.of = ANY (applied);
    END IF;
    IF cardinality(i_of) > 0 THEN
        INSERT INTO toolgate.idempotency AS known
            SELECT p_tenant[i.of], i.credential, i.route, i.key, i.fingerprint, i.status, i.body, i.session, i.key_id, i.expires
            FROM unnest(i_of, i_credential, i_route, i_key, i_fingerprint, i_status, i_body, i_session, i_key_id, i_expires)
                AS i (of, credential, route, key, fingerprint, status, body, session, key_id, expires)
            WHERE i.of = ANY (applied)
            ON CONFLICT (tenant, credential, route, key) DO UPDATE SET status = excluded.status, body = excluded.body,
                session = excluded.session, key_id = excluded.key_id, expires_at = excluded.expires_at
            WHERE known.status IS NULL AND known.fingerprint = excluded.fingerprint;
        GET DIAGNOSTICS answered = ROW_COUNT;
        IF answered < (SELECT count(*) FROM unnest(i_of) AS i (of) WHERE i.of = ANY (applied)) THEN
            RAISE EXCEPTION 'idempotency key answered or used with another body' USING ERRCODE = 'TG007';
        END IF;
    END IF;
    RETURN applied;
END
$$;

REVOKE ALL ON FUNCTION toolgate.write_batch FROM PUBLIC;
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'toolgate_app') THEN
        GRANT EXECUTE ON FUNCTION toolgate.write_batch TO toolgate_app;
    END IF;
END
$$;

-- A row of a few kilobytes stays in one piece: its parts are ciphertext or short, and moving one to the table beside cost
-- as much as two more rows.
ALTER TABLE toolgate.event SET (toast_tuple_target = 8160);
