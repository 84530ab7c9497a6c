-- Purpose: read foreign keys that delete rows of other tables, or their reference, with a row of the target.
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT k.conname::text,
       format('%%I.%%I', n.nspname, c.relname),
       CASE k.confdeltype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' ELSE 'SET DEFAULT' END
  FROM pg_catalog.pg_constraint AS k
  JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE k.contype = 'f'
   AND k.confrelid = %(relation)s
   AND k.confdeltype IN ('c', 'n', 'd')
   AND k.conparentid = 0
 ORDER BY 2, 1
