-- Purpose: set for how long the statements from here on wait for a lock, to the end of the transaction.
-- Parameters: milliseconds (integer). Locks: none. Safe to run twice: it sets the same value again.
SELECT set_config('lock_timeout', %(milliseconds)s || 'ms', true)
