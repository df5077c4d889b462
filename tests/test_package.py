import re
import subprocess
import sys
from pathlib import Path

import hebbseg

ROOT = Path(__file__).parents[1]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True).stdout.strip()


def test_import_does_not_wait_for_torch() -> None:
    assert run("import sys, hebbseg; print('torch' in sys.modules)") == "False"


def test_every_public_name_is_there() -> None:
    assert run("import hebbseg; print(all(hasattr(hebbseg, n) for n in hebbseg.__all__))") == "True"


def test_unknown_name_is_an_attribute_error() -> None:
    assert run("import hebbseg; print(hasattr(hebbseg, 'Plastic'))") == "False"


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = next(name for name in re.findall(r"^## (\S+)", changelog, re.M) if name != "Unreleased")
    assert hebbseg.__version__ == latest == re.search(r"^version: (.+)$", citation, re.M)[1]
