-- Purpose: tell why a table cannot be replaced by a new one of its name: what CREATE TABLE ... LIKE does not copy, what
--   other objects hold of the table itself, and what the role may not do.
-- Parameters: schema, table (names without quotes), written (the columns that the pipeline writes, as an array).
-- Locks: none. Safe to run twice: it only reads the catalog.
-- No row: it can be replaced, or there is no such table.
WITH target AS (
    SELECT c.*, n.nspname
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
),

obstacle AS (
    SELECT 'the table' AS subject, 'a plain table' AS expected, 'partitions, or inheritance' AS found
    FROM target AS t
    WHERE t.relkind <> 'r'
        OR EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE t.oid IN (i.inhrelid, i.inhparent))
    UNION ALL
    SELECT format('role %%s', current_user), 'the owner of the table', format('its owner is %%s', pg_get_userbyid(t.relowner))
    FROM target AS t
    WHERE NOT pg_has_role(t.relowner, 'USAGE')
    UNION ALL
    SELECT format('role %%s', current_user), format('CREATE on SCHEMA %%s', t.nspname), 'not granted'
    FROM target AS t
    WHERE NOT has_schema_privilege(t.relnamespace, 'CREATE')
    UNION ALL
    SELECT format('trigger %%s', g.tgname), 'no trigger', 'a new table would not have it'
    FROM target AS t
    JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = t.oid AND NOT g.tgisinternal
    UNION ALL
    SELECT format('rule %%s', r.rulename), 'no rule', 'a new table would not have it'
    FROM target AS t
    JOIN pg_catalog.pg_rewrite AS r ON r.ev_class = t.oid
    UNION ALL
    SELECT 'row security', 'none', 'a new table would not have its policies'
    FROM target AS t
    WHERE t.relrowsecurity OR EXISTS (SELECT FROM pg_catalog.pg_policy AS p WHERE p.polrelid = t.oid)
    UNION ALL
    SELECT DISTINCT
        v.oid::regclass::text, 'no view of the table', 'it would go on to show the old table'
    FROM target AS t
    JOIN pg_catalog.pg_depend AS d
        ON d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid AND d.classid = 'pg_rewrite'::regclass
    JOIN pg_catalog.pg_rewrite AS r ON r.oid = d.objid
    JOIN pg_catalog.pg_class AS v ON v.oid = r.ev_class AND v.oid <> t.oid
    UNION ALL
    SELECT DISTINCT
        p.oid::regprocedure::text, 'no function that names the table or its row type', 'it would go on to mean the old table'
    FROM target AS t
    JOIN pg_catalog.pg_depend AS d
        ON d.classid = 'pg_proc'::regclass
        AND (
            (d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid)
            OR (d.refclassid = 'pg_type'::regclass AND d.refobjid = t.reltype)
        )
    JOIN pg_catalog.pg_proc AS p ON p.oid = d.objid
    UNION ALL
    SELECT format('foreign key %%s', k.conname), 'no foreign key', format('from %%s to %%s', k.conrelid::regclass, k.confrelid::regclass)
    FROM target AS t
    JOIN pg_catalog.pg_constraint AS k ON k.contype = 'f' AND t.oid IN (k.conrelid, k.confrelid)
    UNION ALL
    SELECT format('publication %%s', p.pubname), 'none that names the table', 'a new table would not be in it'
    FROM target AS t
    JOIN pg_catalog.pg_publication_rel AS m ON m.prrelid = t.oid
    JOIN pg_catalog.pg_publication AS p ON p.oid = m.prpubid
    UNION ALL
    SELECT 'replica identity', 'the default', 'another one, which a new table would not have'
    FROM target AS t
    WHERE t.relreplident <> 'd'
    UNION ALL
    SELECT
        format('column %%s', a.attname),
        CASE WHEN a.attacl IS NULL THEN 'no columns but those that the pipeline writes' ELSE 'no rights on single columns' END,
        CASE WHEN a.attacl IS NULL THEN 'its values would be lost' ELSE 'a new table would not have them' END
    FROM target AS t
    JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid = t.oid
        AND a.attnum > 0
        AND NOT a.attisdropped
        AND (a.attacl IS NOT NULL OR (a.attgenerated = '' AND a.attname <> ALL (%(written)s::text[])))
)

SELECT subject, expected, found
FROM obstacle
ORDER BY subject, expected
