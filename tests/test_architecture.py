"""The architecture: which rooms import which, how large modules are, who prints.

``python -m tests.test_architecture`` prints the graph of the rooms.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import hebbseg

ROOT = Path(hebbseg.__file__).parent
# Left to right as in CONTRIBUTING.md: a room imports itself and rooms of earlier layers only.
LAYERS = (
    ("errors",),
    ("atomic_files", "seeding", "text_files"),
    ("data", "hebbian", "networks", "config"),
    ("reporting.plots",),
    ("planning", "methods", "inference", "evaluation"),
    ("training",),
    ("pretraining",),
    ("runs",),
    ("experiments",),
    ("reporting",),
    ("cli",),
    ("segmenter", "__main__"),
)
LAYER = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))}
PRINTS = ("cli", "segmenter")


def room_of(module: str) -> str:
    """``reporting.plots.overlay`` → ``reporting.plots``; ``data.io.tiff`` → ``data``."""
    return "reporting.plots" if f"{module}.".startswith("reporting.plots.") else module.partition(".")[0]


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs, at any depth: what stands under ``if TYPE_CHECKING`` does not."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield from nodes(other)
        else:
            yield from nodes(child)


def imports(path: Path) -> Iterator[str]:
    """Absolute dotted names, ``from a import b`` as ``a.b``."""
    for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import; write the absolute name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_imports() -> Iterator[tuple[str, str, str]]:
    """(module, its room, imported room) for every import of another room; the top ``__init__`` names all of them."""
    for module, path in MODULES.items():
        inside = (name.removeprefix("hebbseg.") for name in imports(path) if name.startswith("hebbseg."))
        for name in sorted({room_of(name) for name in inside if name != "__version__"}):
            if module != "__init__" and name != room_of(module):
                yield module, room_of(module), name


def test_every_room_has_a_layer() -> None:
    assert {room_of(module) for module in MODULES} - {"__init__"} <= set(LAYER)


def test_rooms_import_only_rooms_of_earlier_layers() -> None:
    wrong = [f"{module} → {to}" for module, room, to in room_imports() if LAYER.get(to, len(LAYERS)) >= LAYER[room]]
    assert not wrong, "\n".join(wrong)


def test_modules_are_small_and_few_lie_loose() -> None:
    lines = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    assert not {module: count for module, count in lines.items() if count > 300}
    assert sum(1 for _ in ROOT.glob("*.py")) <= 7


def test_only_the_command_line_prints() -> None:
    wrong = []
    for module, path in MODULES.items():
        if room_of(module) in PRINTS:
            continue
        wrong += [f"{module} imports {name}" for name in imports(path) if name.split(".")[0] in ("rich", "typer")]
        calls = (node for node in nodes(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        wrong += [f"{module}:{call.lineno} prints" for call in calls if ast.unparse(call.func) == "print"]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    edges = {(room, to) for _, room, to in room_imports()}
    for room in LAYER:
        print(f"{room:16} imports {', '.join(to for to in LAYER if (room, to) in edges) or 'none'}")
