"""`python -m cce`."""

import sys

from cce.cli import main

sys.exit(main())
