"""Run folders below a root, and the current recipes of the grids they belong to."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hebbseg.errors import HebbsegError

RECIPE = "recipe.toml"


@dataclass(frozen=True, kw_only=True)
class Found:
    """Run folders, and the recipes of grids: {resolved folder of the runs: {id: note}}."""

    folders: list[Path]
    recipes: dict[Path, dict[str, dict[str, Any]]]
    unreadable: dict[Path, str]
    """Invalid recipes and the reason; their runs are identified by run.json alone."""

    def recipe_of(self, folder: Path) -> dict[str, dict[str, Any]] | None:
        """Return {id: note} of the grid that contains a run folder."""
        return self.recipes.get(folder.resolve().parent)


def find_runs(roots: Sequence[str | Path]) -> Found:
    """Return the run folders and recipes at or below ``roots``, sorted by path.

    If a root is the folder ``runs`` of a grid, its recipe is above the root and not used.
    """
    folders: dict[Path, Path] = {}
    recipes: dict[Path, dict[str, dict[str, Any]]] = {}
    unreadable: dict[Path, str] = {}
    for root in roots:
        if not Path(root).is_dir():
            raise HebbsegError(f"{root}: folder not found. Give run folders, or folders that contain them.")
        for place, names, files in os.walk(root):
            if "run.json" in files:
                folders.setdefault(Path(place).resolve(), Path(place))
                names.clear()
            if RECIPE in files and "runs" in names:
                try:
                    recipes[(Path(place) / "runs").resolve()] = _notes(Path(place) / RECIPE)
                except HebbsegError as error:
                    unreadable[Path(place) / RECIPE] = str(error)
            names[:] = [name for name in names if not name.startswith(".")]
    return Found(folders=sorted(folders.values()), recipes=recipes, unreadable=unreadable)


def _notes(recipe: Path) -> dict[str, dict[str, Any]]:
    from hebbseg.experiments.grid import notes_of  # imports torch
    from hebbseg.experiments.recipe import load_recipe

    return notes_of(load_recipe(recipe))
