"""Which runs in the folder of a grid are of its recipe as it is now, and what that recipe calls them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hebbseg.errors import HebbsegError

RECIPE = "recipe.toml"


@dataclass(frozen=True, kw_only=True)
class Found:
    """Run folders, and the recipes of the grids among them: {folder of a grid's runs: {id: note}}, resolved."""

    folders: list[Path]
    recipes: dict[Path, dict[str, dict[str, Any]]]
    unreadable: dict[Path, str]
    """Recipes that say nothing any more, and why; the runs beside them stand for themselves."""

    def recipe_of(self, folder: Path) -> dict[str, dict[str, Any]] | None:
        """{id: note} of the grid that a run folder lies in."""
        return self.recipes.get(folder.resolve().parent)


def find_runs(roots: Sequence[str | Path]) -> Found:
    """All that lies at or below ``roots``, in the order of the paths.

    A recipe counts if it is at or below them, too: whoever names the folder ``runs`` of a grid means all that is in it.
    """
    folders: dict[Path, Path] = {}
    recipes: dict[Path, dict[str, dict[str, Any]]] = {}
    unreadable: dict[Path, str] = {}
    for root in roots:
        if not Path(root).is_dir():
            raise HebbsegError(f"{root}: there is no such folder. Give run folders, or folders that hold some.")
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
    from hebbseg.experiments.grid import notes_of  # brings torch along
    from hebbseg.experiments.recipe import load_recipe

    return notes_of(load_recipe(recipe))
