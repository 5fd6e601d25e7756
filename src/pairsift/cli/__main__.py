"""Run the command line: `python -m pairsift.cli`."""

import sys

from pairsift.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
