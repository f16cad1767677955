"""Files spoilt at random, with their structure in mind: everything that reads them works or refuses, and does no more.

``python -m tests.fuzz`` does so for minutes and keeps the figures; ``tests/runs/test_fuzz.py`` does a little of it.
"""

import sys
from pathlib import Path

# The other helpers of the tests are found by name under pytest; here too.
if (home := str(Path(__file__).parents[1])) not in sys.path:
    sys.path.append(home)
