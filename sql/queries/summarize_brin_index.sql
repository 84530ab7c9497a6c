-- Purpose: summarise the new page ranges of a BRIN index; without that a search reads them whole.
-- Parameters: index (quoted name with its schema). The number is NULL where the index is gone.
-- Locks: SHARE UPDATE EXCLUSIVE on index and table, waited for up to lock_timeout: loading goes on, VACUUM waits.
--   Safe to run twice: the second time there are none left.
SELECT brin_summarize_new_values(to_regclass(%(index)s)) AS page_ranges
