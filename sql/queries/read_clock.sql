-- Return the database's clock, which decides whether a hold has ended.
-- Parameters: none. Locks: none. Safe to run twice: reads only.
SELECT clock_timestamp();
