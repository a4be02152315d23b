-- The ledger: what a whole tenant has spent over all its sessions. Unlike the log these rows change; the session's log
-- records each answer of the ledger as an input.

CREATE TABLE toolgate.ledger_counter (
    tenant       text COLLATE "C" NOT NULL,
    counter      text COLLATE "C" NOT NULL,
    window_start bigint NOT NULL CHECK (window_start >= 0),
    used         bigint NOT NULL CHECK (used >= 0),
    PRIMARY KEY (tenant, counter, window_start)
) WITH (fillfactor = 50); -- a shared counter changes with every call of the tenant: leave room for it on its page
CREATE INDEX ledger_counter_window ON toolgate.ledger_counter (window_start) WHERE window_start > 0;

CREATE TABLE toolgate.ledger_reservation (
    tenant      text COLLATE "C" NOT NULL,
    session     uuid   NOT NULL,
    key         text COLLATE "C" NOT NULL,
    reserved_at bigint NOT NULL,
    settled_at  bigint,
    PRIMARY KEY (tenant, session, key)
);
CREATE INDEX ledger_reservation_settled ON toolgate.ledger_reservation (settled_at) WHERE settled_at IS NOT NULL;

CREATE TABLE toolgate.ledger_charge (
    tenant       text COLLATE "C" NOT NULL,
    session      uuid   NOT NULL,
    key          text COLLATE "C" NOT NULL,
    counter      text COLLATE "C" NOT NULL,
    window_start bigint NOT NULL,
    amount       bigint NOT NULL CHECK (amount >= 0),
    PRIMARY KEY (tenant, session, key, counter, window_start),
    FOREIGN KEY (tenant, session, key) REFERENCES toolgate.ledger_reservation ON DELETE CASCADE
);

-- Settles earlier reservations of a session, then reserves under p_key, or only settles where p_key is absent. Answers
-- granted or refused; refused names the first charge over its limit by its number from 1, and what its counter holds.
-- One statement for the caller. Locks are taken in one order by everybody: reservations to settle by key, the new
-- reservation, then counters by name and window. Two sessions can wait for each other, but never in a circle.
-- Own error code: TG008 a settlement goes over what a counter can hold; the message names the place.
CREATE FUNCTION toolgate.ledger_write(
    p_tenant text, p_session uuid, p_at bigint,
    p_settle text[], p_used_key text[], p_used_counter text[], p_used bigint[],
    p_key text, p_counter text[], p_window bigint[], p_amount bigint[], p_limit bigint[],
    OUT outcome text, OUT refused_nth bigint, OUT refused_used bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    settling text[];
    is_new boolean := false;
    is_there boolean;
    made_counter text[] := '{}';
    made_window bigint[] := '{}';
    held bigint;
    total numeric;
    s record;
BEGIN
    outcome := 'granted';
    settling := ARRAY(
        SELECT r.key FROM toolgate.ledger_reservation r
        WHERE r.tenant = p_tenant AND r.session = p_session AND r.key = ANY (p_settle) AND r.settled_at IS NULL
        ORDER BY r.key FOR UPDATE);
    UPDATE toolgate.ledger_reservation r SET settled_at = p_at
        WHERE r.tenant = p_tenant AND r.session = p_session AND r.key = ANY (settling);

    IF p_key IS NOT NULL THEN
        -- Of two callers with the same key the second waits here, and then finds it granted or free.
        INSERT INTO toolgate.ledger_reservation (tenant, session, key, reserved_at)
            VALUES (p_tenant, p_session, p_key, p_at) ON CONFLICT DO NOTHING;
        is_new := FOUND;
    END IF;

    FOR s IN
        SELECT slot.counter, slot.window_start, sum(slot.delta) AS delta,
            max(slot.nth) AS nth, max(slot.amount) AS amount, max(slot.ceiling) AS ceiling
        FROM (
            SELECT c.counter, c.window_start, coalesce(u.used, 0)::numeric - c.amount AS delta,
                NULL::bigint AS nth, NULL::bigint AS amount, NULL::bigint AS ceiling
            FROM toolgate.ledger_charge c
            LEFT JOIN unnest(p_used_key, p_used_counter, p_used) AS u (key, counter, used)
                ON u.key = c.key AND u.counter = c.counter
            WHERE c.tenant = p_tenant AND c.session = p_session AND c.key = ANY (settling)
            UNION ALL
            SELECT n.counter, n.window_start, 0, n.nth, n.amount, n.ceiling
            FROM unnest(p_counter, p_window, p_amount, p_limit) WITH ORDINALITY
                AS n (counter, window_start, amount, ceiling, nth)
            WHERE is_new
        ) AS slot
        GROUP BY slot.counter, slot.window_start
        ORDER BY slot.counter COLLATE "C", slot.window_start
    LOOP
        is_there := false;
        -- A counter that is swept between the two statements is made again; more than a few times is nobody's luck.
        FOR attempt IN 1..8 LOOP
            SELECT c.used INTO held FROM toolgate.ledger_counter c
                WHERE c.tenant = p_tenant AND c.counter = s.counter AND c.window_start = s.window_start FOR UPDATE;
            is_there := FOUND;
            -- A settlement alone does not bring a swept window back.
            EXIT WHEN is_there OR s.nth IS NULL;
            INSERT INTO toolgate.ledger_counter (tenant, counter, window_start, used)
                VALUES (p_tenant, s.counter, s.window_start, 0) ON CONFLICT DO NOTHING;
            IF FOUND THEN
                is_there := true;
                held := 0;
                made_counter := made_counter || s.counter;
                made_window := made_window || s.window_start;
                EXIT;
            END IF;
        END LOOP;
        IF NOT is_there THEN
            CONTINUE WHEN s.nth IS NULL;
            RAISE EXCEPTION 'counter % comes and goes', s.counter USING ERRCODE = '40001';
        END IF;

        total := greatest(held + s.delta, 0);
        IF total > 9223372036854775807 THEN
            RAISE EXCEPTION 'settle: counter `%`', s.counter USING ERRCODE = 'TG008';
        END IF;
        IF total <> held THEN
            UPDATE toolgate.ledger_counter c SET used = total
                WHERE c.tenant = p_tenant AND c.counter = s.counter AND c.window_start = s.window_start;
        END IF;
        IF s.nth IS NOT NULL AND total + s.amount > s.ceiling AND (refused_nth IS NULL OR s.nth < refused_nth) THEN
            outcome := 'refused';
            refused_nth := s.nth;
            refused_used := total;
        END IF;
    END LOOP;

    IF outcome = 'refused' THEN
        DELETE FROM toolgate.ledger_counter c USING unnest(made_counter, made_window) AS m (counter, window_start)
            WHERE c.tenant = p_tenant AND c.counter = m.counter AND c.window_start = m.window_start;
        DELETE FROM toolgate.ledger_reservation r
            WHERE r.tenant = p_tenant AND r.session = p_session AND r.key = p_key;
    ELSIF is_new THEN
        UPDATE toolgate.ledger_counter c SET used = c.used + n.amount
            FROM unnest(p_counter, p_window, p_amount) AS n (counter, window_start, amount)
            WHERE c.tenant = p_tenant AND c.counter = n.counter AND c.window_start = n.window_start;
        INSERT INTO toolgate.ledger_charge (tenant, session, key, counter, window_start, amount)
            SELECT p_tenant, p_session, p_key, n.counter, n.window_start, n.amount
            FROM unnest(p_counter, p_window, p_amount) AS n (counter, window_start, amount);
    END IF;
END
$$;

-- The rights of the server: it reads the ledger, sweeps it, and changes what was spent only through the function.
REVOKE ALL ON FUNCTION toolgate.ledger_write FROM PUBLIC;
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'toolgate_app') THEN
        GRANT SELECT ON toolgate.ledger_counter, toolgate.ledger_reservation, toolgate.ledger_charge TO toolgate_app;
        GRANT DELETE ON toolgate.ledger_counter, toolgate.ledger_reservation TO toolgate_app;
        GRANT EXECUTE ON FUNCTION toolgate.ledger_write TO toolgate_app;
    END IF;
END
$$;
