-- Purpose: read the server's version, the database's encoding, and the address that the connection has reached.
-- Parameters: none.
-- Locks: none. Safe to run twice: it only reads.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_number,
       current_setting('server_encoding') AS encoding,
       current_database()::text AS database,
       current_user::text AS role
