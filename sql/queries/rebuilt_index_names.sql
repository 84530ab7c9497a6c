-- Purpose: list the statements that give the indexes of a new table the names of the same indexes of the table whose place
--   it has taken. A constraint goes by the name of its index.
-- Parameters: schema, table (the new table by now), replaced (the table before; names without quotes), suffix.
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH index AS (
    SELECT
        c.relname AS of_table, n.nspname, x.relname,
        row_number() OVER (
            PARTITION BY c.oid, what.parts, i.indisunique, i.indisprimary, pg_get_expr(i.indpred, i.indrelid), x.relam
            ORDER BY x.relname
        ) AS number,
        row(what.parts, i.indisunique, i.indisprimary, pg_get_expr(i.indpred, i.indrelid), x.relam)::text AS kind
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
    CROSS JOIN LATERAL (
        SELECT array_agg(pg_get_indexdef(i.indexrelid, k, true) ORDER BY k) AS parts
        FROM generate_series(1, i.indnatts) AS k
    ) AS what
    WHERE n.nspname = %(schema)s AND c.relname IN (%(table)s, %(replaced)s)
),

pair AS (
    SELECT o.nspname, o.relname AS name, n.relname AS new_name
    FROM index AS o
    JOIN index AS n USING (kind, number)
    WHERE o.of_table = %(replaced)s AND n.of_table = %(table)s
)

SELECT format('ALTER INDEX %%I.%%I RENAME TO %%I', nspname, name, left(name, 40) || %(suffix)s) AS text, 1 AS number
FROM pair
UNION ALL
SELECT format('ALTER INDEX %%I.%%I RENAME TO %%I', nspname, new_name, name), 2
FROM pair
ORDER BY number, text
