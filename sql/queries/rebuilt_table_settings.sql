-- Purpose: list the statements that give a new table what LIKE does not copy of another: storage parameters, tablespace,
--   comment, rights and owner, in this order.
-- Parameters: schema, table, rebuilt (names without quotes; both tables are in the schema).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH target AS (
    SELECT c.*, format('%%I.%%I', n.nspname, %(rebuilt)s::text) AS rebuilt
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
),

statement AS (
    SELECT 1 AS number, format('ALTER TABLE %%s SET (%%s)', t.rebuilt, array_to_string(t.reloptions, ', ')) AS text
    FROM target AS t
    WHERE t.reloptions IS NOT NULL
    UNION ALL
    SELECT 2, format('ALTER TABLE %%s SET TABLESPACE %%I', t.rebuilt, s.spcname)
    FROM target AS t
    JOIN pg_catalog.pg_tablespace AS s ON s.oid = t.reltablespace
    UNION ALL
    SELECT 3, format('COMMENT ON TABLE %%s IS %%L', t.rebuilt, obj_description(t.oid, 'pg_class'))
    FROM target AS t
    WHERE obj_description(t.oid, 'pg_class') IS NOT NULL
    UNION ALL
    SELECT
        4,
        format(
            'GRANT %%s ON %%s TO %%s%%s', a.privilege_type, t.rebuilt,
            CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
            CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
        )
    FROM target AS t
    CROSS JOIN LATERAL aclexplode(t.relacl) AS a
    WHERE a.grantee <> t.relowner
    UNION ALL
    SELECT 5, format('ALTER TABLE %%s OWNER TO %%I', t.rebuilt, pg_get_userbyid(t.relowner))
    FROM target AS t
    WHERE pg_get_userbyid(t.relowner) <> current_user
)

SELECT text
FROM statement
ORDER BY number, text
