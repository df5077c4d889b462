import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True).stdout.strip()


def test_import_does_not_wait_for_torch() -> None:
    assert run("import sys, hebbseg; print('torch' in sys.modules)") == "False"


def test_every_public_name_is_there() -> None:
    assert run("import hebbseg; print(all(hasattr(hebbseg, n) for n in hebbseg.__all__))") == "True"


def test_unknown_name_is_an_attribute_error() -> None:
    assert run("import hebbseg; print(hasattr(hebbseg, 'Plastic'))") == "False"
