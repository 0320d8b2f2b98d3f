"""``python -m placegap.experiments.cli``."""

import sys

from placegap.experiments.cli import main

if __name__ == "__main__":
    sys.exit(main())
