-- Gives the database's clock, by which holds are judged.
-- Parameters: none. Locks: none. Safe to run twice: reads only.
SELECT clock_timestamp();
