"""Found first by every Python that a trial run without namespaces starts, so that it leads its calls away as well."""

import importlib
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
if os.environ.get("ACCELIFY_VERIFY_TREE"):
    sys.path.append(os.environ["ACCELIFY_VERIFY_PACKAGE"])
    try:
        from accelify.verify.sandbox import redirected

        redirected.install_again()
    finally:
        sys.path.remove(os.environ["ACCELIFY_VERIFY_PACKAGE"])

# The user's sitecustomize, which this one has hidden.
_rest = [path for path in sys.path if os.path.abspath(path) != _here]
sys.path[:] = _rest
_this = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")
except ImportError:
    sys.modules["sitecustomize"] = _this
