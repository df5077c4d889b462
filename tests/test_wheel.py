"""The wheel, installed where the source tree is not: complete, and its commands and data files work."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import hebbseg

ROOT = Path(__file__).parents[1]
USE_DATA_FILES = """
import hebbseg
from jinja2 import Environment, PackageLoader
from hebbseg.reporting.published import published
templates = Environment(loader=PackageLoader("hebbseg.reporting")).list_templates()
print(hebbseg.__file__, len(published("sota", "glas")), *templates, sep="\\n")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A copy, or setuptools would write build/ into the source tree and read what an earlier build left there.
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(copy))
    return next(out.glob("*.whl"))


def test_the_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    copy = tmp_path / "source"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=copy, check=True, capture_output=True)
    (archive,) = tmp_path.glob("hebbseg-*.tar.gz")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "wheel"), str(archive))
    (again,) = (tmp_path / "wheel").glob("*.whl")
    assert again.name == wheel.name
    contents = [
        {name: zipfile.ZipFile(file).read(name) for name in zipfile.ZipFile(file).namelist()} for file in (wheel, again)
    ]
    for files in contents:
        files.pop(next(name for name in files if name.endswith("/RECORD")))
    assert contents[0] == contents[1] and any(name.endswith("licenses/LICENSE") for name in contents[0])


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True, env=clean_environment())


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("hebbseg/")}
    files = (path for path in (ROOT / "src" / "hebbseg").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert packed == {path.relative_to(ROOT / "src").as_posix() for path in files}


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    scheme = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    site = Path(sysconfig.get_path("purelib", vars=scheme))
    # Dependencies come from the environment of the tests, after the new one's own packages.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = str(tmp_path / "venv" / "bin" / "python")
    pip("--python", python, "install", "--no-deps", "--no-index", str(wheel))

    def output(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=clean_environment(), capture_output=True, encoding="utf-8", check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    script = str(Path(python).with_name("hebbseg"))
    assert output(script, "--version").strip() == f"hebbseg {hebbseg.__version__}"
    assert "train" in output(script, "--help")
    package, rows, *templates = output(python, "-c", USE_DATA_FILES).splitlines()
    assert Path(package).is_relative_to(site) and int(rows) > 0
    assert {path.name for path in (ROOT / "src/hebbseg/reporting/templates").iterdir()} == set(templates)
