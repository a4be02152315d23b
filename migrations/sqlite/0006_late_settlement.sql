-- What a reservation really cost may be learnt after the session was closed.
DROP TRIGGER event_after_close;
CREATE TRIGGER event_after_close BEFORE INSERT ON event
WHEN NEW.kind NOT IN ('late_outcome', 'outcome_refused', 'budget_settled', 'erased')
BEGIN
    SELECT RAISE(ABORT, 'guard:session_closed')
    WHERE EXISTS (SELECT 1 FROM session s WHERE s.tenant = NEW.tenant AND s.session = NEW.session AND s.closed);
END;
