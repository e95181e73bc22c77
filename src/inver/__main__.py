"""`python -m inver`."""

import sys

from inver.cli.main import main

sys.exit(main())
