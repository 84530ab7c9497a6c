-- Purpose: keep a stopped or cut-off worker from holding its transaction, and with it the staging tables, for ever.
-- Parameters: lock_timeout, idle_timeout (with units).
-- Locks: none. Safe to run twice: it sets the same values again.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true)
