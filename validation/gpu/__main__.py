"""Run the script."""

import sys

from probcalc.validation.gpu.script import main

sys.exit(main())
