"""`python -m warpcert`."""

import sys

from warpcert.app.cli import main

sys.exit(main())
