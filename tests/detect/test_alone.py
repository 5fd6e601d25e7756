"""The detector is loaded without the rest of the package."""

import json
import subprocess
import sys

MODULES = """
import json, pkgutil, importlib, sys
import pairsift.detect
for found in pkgutil.iter_modules(pairsift.detect.__path__, "pairsift.detect."):
    importlib.import_module(found.name)
print(json.dumps(sorted(name for name in sys.modules if name.startswith("pairsift."))))
"""


def test_no_reader_encoder_matcher_or_method_is_loaded():
    words = [sys.executable, "-c", MODULES]
    loaded = json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    others = {name for name in loaded if not name.startswith("pairsift.detect")}
    assert "pairsift.detect.judgement" in loaded
    assert others <= {"pairsift.arrays", "pairsift.cores", "pairsift.errors", "pairsift.registry"}, others
