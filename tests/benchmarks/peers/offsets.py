"""The offsets that peers keep in the database, in the transaction that writes the rows before them."""

OFFSETS = """
    CREATE TABLE IF NOT EXISTS bench_offsets (
        table_name text, topic text, partition integer, next_offset bigint NOT NULL,
        PRIMARY KEY (table_name, topic, partition))
"""
#: The table is empty at the start, whatever an earlier run into a table of that name left here.
START = "DELETE FROM bench_offsets WHERE table_name = %s"
ADVANCE = """
    INSERT INTO bench_offsets VALUES (%s, %s, %s, %s)
    ON CONFLICT (table_name, topic, partition) DO UPDATE SET next_offset = EXCLUDED.next_offset
"""
READ = "SELECT partition, next_offset FROM bench_offsets WHERE table_name = %s AND topic = %s"
#: Writes nothing when the offset is no longer the one that the run began at: another run was there first.
ADVANCE_FROM = """
    INSERT INTO bench_offsets AS kept VALUES (%s, %s, %s, %s)
    ON CONFLICT (table_name, topic, partition) DO UPDATE SET next_offset = EXCLUDED.next_offset
    WHERE kept.next_offset = %s
"""
