"""Everything that knows PostgreSQL: ledger, target, staging tables, publish transaction."""
