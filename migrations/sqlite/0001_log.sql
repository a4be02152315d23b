-- The schema of a single node. Rowid tables with unique keys: rows inside a clustered key would cost three times as much.
-- Times are microseconds; session keys are the 16 bytes of the UUID; header and payload are exact bytes.
CREATE TABLE session (
    tenant            TEXT    NOT NULL,
    session           BLOB    NOT NULL CHECK (length(session) = 16),
    alias             TEXT,
    body_fingerprint  BLOB    NOT NULL,
    bundle            BLOB    NOT NULL,
    created_at        INTEGER NOT NULL,
    epoch             INTEGER NOT NULL CHECK (epoch > 0),
    owner             TEXT,
    owner_incarnation INTEGER,
    head_seq          INTEGER NOT NULL CHECK (head_seq >= 0),
    head_hash         BLOB    NOT NULL CHECK (length(head_hash) = 32),
    closed            INTEGER NOT NULL,
    status            TEXT    NOT NULL,
    active            INTEGER NOT NULL,
    profile           TEXT,
    ending            TEXT,
    pending_approvals INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    next_wake_at      INTEGER,
    title             BLOB,
    title_key         TEXT,
    UNIQUE (tenant, session)
) STRICT;

CREATE UNIQUE INDEX session_alias ON session (tenant, alias) WHERE alias IS NOT NULL;
CREATE INDEX session_newest ON session (tenant, created_at, session);
CREATE INDEX session_active ON session (tenant, session) WHERE active;
CREATE INDEX session_due ON session (next_wake_at) WHERE next_wake_at IS NOT NULL;

CREATE TABLE node (
    node        TEXT    NOT NULL UNIQUE,
    incarnation INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    draining    INTEGER NOT NULL
) STRICT;

CREATE TABLE event (
    tenant           TEXT    NOT NULL,
    session          BLOB    NOT NULL CHECK (length(session) = 16),
    seq              INTEGER NOT NULL CHECK (seq > 0),
    epoch            INTEGER NOT NULL CHECK (epoch > 0),
    kind             TEXT    NOT NULL,
    run              INTEGER,
    step             INTEGER,
    call             TEXT,
    decision         INTEGER NOT NULL,
    allow            INTEGER NOT NULL,
    dispatch_attempt INTEGER,
    terminal         INTEGER NOT NULL,
    input_id         TEXT,
    recorded_at      INTEGER NOT NULL,
    header           BLOB    NOT NULL,
    payload          BLOB    NOT NULL,
    prev_hash        BLOB    NOT NULL CHECK (length(prev_hash) = 32),
    hash             BLOB    NOT NULL CHECK (length(hash) = 32),
    UNIQUE (tenant, session, seq),
    CHECK (call IS NOT NULL OR NOT (decision OR allow OR terminal OR dispatch_attempt IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX event_input ON event (tenant, session, input_id) WHERE input_id IS NOT NULL;
CREATE UNIQUE INDEX event_decision ON event (tenant, session, call) WHERE decision;
CREATE UNIQUE INDEX event_later_allow ON event (tenant, session, call) WHERE allow AND NOT decision;
CREATE UNIQUE INDEX event_dispatch ON event (tenant, session, call, dispatch_attempt) WHERE dispatch_attempt IS NOT NULL;
CREATE UNIQUE INDEX event_terminal ON event (tenant, session, call) WHERE terminal;

CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'guard:append_only'); END;
CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'guard:append_only'); END;

-- INSERT OR REPLACE removes the row it replaces without asking the trigger above. The store itself comes here only when
-- rows stand beyond the head of their session.
CREATE TRIGGER event_no_replace BEFORE INSERT ON event
WHEN EXISTS (SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'guard:taken');
END;

-- The rules over the records of one call. The partial indexes above hold the same uniqueness a second time, but SQLite
-- does not say which of them refused, so the rules are asked first.
CREATE TRIGGER event_call_rules BEFORE INSERT ON event
WHEN NEW.decision OR NEW.allow OR NEW.terminal OR NEW.dispatch_attempt IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'guard:second_decision') WHERE NEW.decision AND EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call AND e.decision);
    SELECT RAISE(ABORT, 'guard:second_allow') WHERE NEW.allow AND NOT NEW.decision AND EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call
            AND e.allow AND NOT e.decision);
    SELECT RAISE(ABORT, 'guard:second_dispatch') WHERE NEW.dispatch_attempt IS NOT NULL AND EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call
            AND e.dispatch_attempt = NEW.dispatch_attempt);
    SELECT RAISE(ABORT, 'guard:second_terminal') WHERE NEW.terminal AND EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call AND e.terminal);
    SELECT RAISE(ABORT, 'guard:dispatch_without_allow')
    WHERE NEW.dispatch_attempt IS NOT NULL AND NOT NEW.allow AND NOT EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call
            AND e.decision AND e.allow
    ) AND NOT EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call
            AND e.allow AND NOT e.decision
    );
    SELECT RAISE(ABORT, 'guard:dispatch_after_terminal') WHERE NEW.dispatch_attempt IS NOT NULL AND EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call AND e.terminal);
    SELECT RAISE(ABORT, 'guard:terminal_without_decision') WHERE NEW.terminal AND NOT NEW.decision AND NOT EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call AND e.decision);
    SELECT RAISE(ABORT, 'guard:allow_without_decision') WHERE NEW.allow AND NOT NEW.decision AND NOT EXISTS (
        SELECT 1 FROM event e WHERE e.tenant = NEW.tenant AND e.session = NEW.session AND e.call = NEW.call
            AND e.decision AND NOT e.allow);
END;

CREATE TRIGGER event_after_close BEFORE INSERT ON event
WHEN NEW.kind NOT IN ('late_outcome', 'outcome_refused', 'erased')
BEGIN
    SELECT RAISE(ABORT, 'guard:session_closed')
    WHERE EXISTS (SELECT 1 FROM session s WHERE s.tenant = NEW.tenant AND s.session = NEW.session AND s.closed);
END;
