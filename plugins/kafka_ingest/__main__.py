"""``python -m kafka_ingest``."""

import sys

from kafka_ingest.cli.main import main

sys.exit(main())
