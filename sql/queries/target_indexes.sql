-- Purpose: the usable indexes of the target without a condition: whether each is unique, and its key columns in order
--   (a key that is an expression is left out of the list).
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT i.indisunique,
       ARRAY(SELECT a.attname::text
               FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
               JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
              WHERE k.place <= i.indnkeyatts
              ORDER BY k.place),
       i.indnkeyatts
  FROM pg_catalog.pg_index AS i
 WHERE i.indrelid = %(relation)s
   AND i.indisvalid
   AND i.indpred IS NULL
