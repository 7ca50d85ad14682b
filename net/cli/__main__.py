"""`python -m callboard.net.cli`: the command line where the script is not on the path."""

from __future__ import annotations

import sys

from .main import main

sys.exit(main())
