-- Purpose: let the joins of a fold keep a hash of its keys in memory, instead of writing both sides to files: 64 MB hold a
--   million keys, where work_mem is 4 MB. Sorts stay within work_mem.
-- Parameters: none. Locks: none. Safe to run twice: it sets the same value again.
SELECT set_config('hash_mem_multiplier', greatest(16, current_setting('hash_mem_multiplier')::float)::text, true)
