"""`python -m cutaway` is the command line."""

import sys

from .commands import main

sys.exit(main())
