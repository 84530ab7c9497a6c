-- Purpose: the number of blocks of a staging table's file.
-- Parameters: staging (its quoted name).
-- Locks: none. Safe to run twice: it only reads.
SELECT pg_relation_size(%(staging)s::regclass) / current_setting('block_size')::integer AS blocks
