"""``python -m kafka_ingest``."""

import sys

from kafka_ingest.cli import main

sys.exit(main())
