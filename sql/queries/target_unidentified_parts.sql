-- Purpose: read the target, partitions and inheritance children from which nothing can be deleted, or in which nothing
--   can be updated, because a publication publishes that and they have no replica identity (CheckCmdReplicaIdentity in
--   execReplication.c, PostgreSQL 18); with the publication of deletes, and the one of updates.
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH RECURSIVE family AS (
    SELECT %(relation)s::oid AS oid
    UNION
    SELECT i.inhrelid
      FROM family AS f
      JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.oid
),

member AS (
    SELECT c.oid, c.relkind, c.relreplident, n.nspname, c.relname
      FROM family AS f
      JOIN pg_catalog.pg_class AS c ON c.oid = f.oid
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
)
SELECT format('%%I.%%I', m.nspname, m.relname),
       min(p.pubname) FILTER (WHERE p.pubdelete)::text,
       min(p.pubname) FILTER (WHERE p.pubupdate)::text
  FROM member AS m
  JOIN member AS listed ON listed.oid = m.oid OR listed.relkind = 'p' -- published by its root
  JOIN pg_catalog.pg_publication_tables AS t ON t.schemaname = listed.nspname AND t.tablename = listed.relname
  JOIN pg_catalog.pg_publication AS p ON p.pubname = t.pubname
 WHERE m.relkind = 'r'
   AND (p.pubdelete OR p.pubupdate)
   AND m.relreplident <> 'f'
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_index AS i
            WHERE i.indrelid = m.oid
              AND i.indisvalid
              AND CASE m.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
       )
 GROUP BY 1
 ORDER BY 1
