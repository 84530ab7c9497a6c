-- Purpose: summarise the page ranges of a BRIN index that are not yet summarised; without it a search reads them whole.
-- Parameters: index (quoted name with its schema). The number is NULL where the index is gone.
-- Locks: SHARE UPDATE EXCLUSIVE on index and table, waited for up to lock_timeout: loading goes on, VACUUM waits.
--   Safe to run twice: the second time there are none left.
SELECT brin_summarize_new_values(to_regclass(%(index)s)) AS page_ranges
