-- What a reservation really cost may be learnt after the session was closed. Of the append only this list changes; rights
-- and owner of the function stay.
DO $$
DECLARE
    old constant text := pg_get_functiondef('toolgate.append'::regproc);
    new constant text := replace(old, '''outcome_refused'', ''erased''', '''outcome_refused'', ''budget_settled'', ''erased''');
BEGIN
    IF new = old THEN
        RAISE EXCEPTION 'toolgate.append is not the function that this migration changes';
    END IF;
    EXECUTE new;
END
$$;
