"""Everything that knows Kafka on the planning side: settings, refusals, offsets, topics."""
