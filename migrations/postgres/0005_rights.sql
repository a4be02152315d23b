-- The server works as `toolgate_app`, which may read the log and write it only through the functions of 0004. Where the
-- migrating user may not create roles, the server works as its own user, and only triggers and the chain stand guard.
-- Roles belong to the whole cluster: another database may create it at the same moment.
DO $$
DECLARE
    role_exists boolean;
BEGIN
    BEGIN
        CREATE ROLE toolgate_app NOLOGIN;
    EXCEPTION
        WHEN duplicate_object OR unique_violation THEN NULL;
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'role toolgate_app cannot be created by %: rights on the log are not narrowed', current_user;
    END;
    SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'toolgate_app') INTO role_exists;

    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA toolgate FROM PUBLIC;
    IF NOT role_exists THEN
        RETURN;
    END IF;

    GRANT USAGE ON SCHEMA toolgate TO toolgate_app;
    GRANT SELECT ON ALL TABLES IN SCHEMA toolgate TO toolgate_app;
    GRANT UPDATE (owner, owner_incarnation) ON toolgate.session TO toolgate_app;
    GRANT INSERT, UPDATE ON toolgate.node, toolgate.bundle_current TO toolgate_app;
    GRANT INSERT ON toolgate.inbox, toolgate.bundle, toolgate.security_log, toolgate.api_key TO toolgate_app;
    GRANT UPDATE (revoked_at) ON toolgate.api_key TO toolgate_app;
    GRANT INSERT, UPDATE, DELETE ON toolgate.idempotency TO toolgate_app;
    GRANT UPDATE (attempts, due_at), DELETE ON toolgate.outbox TO toolgate_app;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA toolgate TO toolgate_app;

    -- From PostgreSQL 16 on, having created a role is not yet leave to work as it.
    BEGIN
        EXECUTE format('GRANT toolgate_app TO %I', current_user);
    EXCEPTION
        WHEN insufficient_privilege OR internal_error OR invalid_grant_operation THEN
            RAISE NOTICE '% is no member of toolgate_app: rights on the log are not narrowed', current_user;
    END;
END
$$;
