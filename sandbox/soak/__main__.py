"""Entry of ``python -m sandbox.soak``."""

import sys

from sandbox.soak.command import main

sys.exit(main())
