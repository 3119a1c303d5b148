"""`python -m mooring` is the command line."""

import sys

from mooring.cli import main

sys.exit(main())
