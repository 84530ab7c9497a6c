-- Purpose: take a chunk of rows or dead letters from the client.
-- Identifiers: staging_table, columns; options (spark_jobs/copy_format.py, copy_binary.py).
-- Locks: ROW EXCLUSIVE on the staging table. Not to run twice within a task attempt: it would add the rows again.
COPY {staging_table} ({columns}) FROM STDIN WITH ({options})
