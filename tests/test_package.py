import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hebbseg

ROOT = Path(__file__).parents[1]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")


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


def test_every_package_that_is_installed_for_hebbseg_is_pinned() -> None:
    """constraints.txt is the lock file: what hebbseg and its extras need, directly or not."""
    pinned = {name.partition("==")[0] for name in re.findall(r"^[\w.-]+==[^\s#]+", CONSTRAINTS, re.M)}
    needed: set[str] = set()
    waiting = [Requirement("hebbseg[cluster,dev,docs,export,tensorboard,zarr]")]
    while waiting:
        asked = waiting.pop()
        try:
            found = distribution(asked.name)
        except PackageNotFoundError:  # an extra that is not installed here
            continue
        for text in found.requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in (asked.extras or {""}))
            if applies and (key := f"{requirement.name}{sorted(requirement.extras)}") not in needed:
                needed.add(key)
                waiting.append(requirement)
    present = {canonicalize_name(found.name) for found in distributions()}
    installed = {canonicalize_name(key.partition("[")[0]) for key in needed} & present
    assert len(installed) > 40
    assert installed - {canonicalize_name(name) for name in pinned} - {"hebbseg"} == set()
