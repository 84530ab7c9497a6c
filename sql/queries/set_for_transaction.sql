-- Set what the statements of a transaction depend on, whatever the settings of role, database or server.
-- Parameters: names, values and replaced as arrays; replaced is the only value that is replaced, NULL means any.
-- Locks: none. Safe to run twice: it sets the same values again.
-- Only settings with another value are touched: some are for superusers, and an older server does not know newer ones.
SELECT set_config(setting.name, setting.value, true)
FROM unnest(%(names)s::text[], %(values)s::text[], %(replaced)s::text[]) AS setting (name, value, replaced)
WHERE current_setting(setting.name, true) <> setting.value
    AND coalesce(current_setting(setting.name, true) = setting.replaced, true)
    AND (setting.name <> 'client_connection_check_interval' OR version() LIKE '%%linux%%')
