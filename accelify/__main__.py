"""`python -m accelify`: the same as the command `accelify`."""

import os
import sys

if __name__ == "__main__":
    # Python looks into the working folder first, whose `logging.py` is not the library's.
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]

    from accelify.cli.entry import main

    main()
