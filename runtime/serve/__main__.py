"""``python -m nojit.runtime.serve``: run a program whose processes are served."""

from __future__ import annotations

import sys

from nojit.runtime.errors import NojitError
from nojit.runtime.serve.run import main

try:
    main(sys.argv[1:])
except (NojitError, FileNotFoundError) as error:
    raise SystemExit(f"nojit: {error}") from None
