"""Generated data sets such as ``phantom:glands``: no download, no files, identical on every machine."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from hebbseg.data.cases import Case, Problem
from hebbseg.data.io.limits import VARIABLE, max_pixels
from hebbseg.data.labels.masks import two_classes
from hebbseg.data.phantoms import atrium, glands, lesions, pupils, vessels
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.seeding import digest

Draw = Callable[[np.random.Generator, Any, tuple[int, ...]], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of phantom: its generators of patients and images, and its default sizes."""

    patient: Callable[[np.random.Generator], Any]
    draw: Draw
    foreground: str
    channels: int
    n: int
    per_patient: int
    size: tuple[int, ...]
    field_mm: float | None = None


PHANTOMS: dict[str, Kind] = {
    "glands": Kind(
        patient=glands.patient, draw=glands.draw, foreground="gland", channels=3, n=120, per_patient=4, size=(128, 128)
    ),
    "lesions": Kind(
        patient=lesions.patient, draw=lesions.draw, foreground="lesion", channels=3, n=150, per_patient=1, size=(128, 128)
    ),
    "pupils": Kind(
        patient=pupils.patient, draw=pupils.draw, foreground="pupil", channels=1, n=240, per_patient=12, size=(128, 128)
    ),
    "atrium": Kind(
        patient=atrium.patient,
        draw=atrium.draw,
        foreground="left atrium",
        channels=1,
        n=30,
        per_patient=1,
        size=(64, 64, 48),
        field_mm=120.0,
    ),
    "vessels": Kind(
        patient=vessels.patient, draw=vessels.draw, foreground="vessel", channels=3, n=40, per_patient=2, size=(1000, 1000)
    ),
}
TEST_SHARE = 1 / 3
SMALLEST_SIDE = 32
MOST = 1_000_000  # images


class PhantomSource:
    """A `Source` whose images are generated on access.

    Image i depends only on (seed, kind, i) and the traits of its patient only on (seed, kind, patient), not on ``n`` or
    the order of access. The last third of the patients is the published test set.
    """

    def __init__(self, *, kind: str, n: int, size: tuple[int, ...], seed: int) -> None:
        self.kind = kind
        self.n = n
        self.size = size
        self.seed = seed
        recipe = PHANTOMS[kind]
        self.name = f"phantom:{kind}?n={n}&size={_joined(size)}&seed={seed}"
        self.spatial_dims = len(size)
        self.channels = recipe.channels
        self.classes = two_classes(1, ("background", recipe.foreground))
        self.problems: tuple[Problem, ...] = ()
        spacing = None if recipe.field_mm is None else tuple(recipe.field_mm / side for side in size)
        patients = -(-n // recipe.per_patient)
        test_patients = max(1, round(TEST_SHARE * patients)) if patients > 1 else 0
        self.cases = tuple(
            Case(
                id=f"{kind}_{index:04d}",
                mask=(),
                group=f"patient_{index // recipe.per_patient:03d}",
                spacing_mm=spacing,
                subset="test" if index // recipe.per_patient >= patients - test_patients else "train",
            )
            for index in range(n)
        )
        self._last: tuple[str, np.ndarray, np.ndarray] | None = None

    def image(self, case: Case) -> np.ndarray:
        return self._drawn(case)[0]

    def mask(self, case: Case) -> np.ndarray:
        return self._drawn(case)[1]

    def _drawn(self, case: Case) -> tuple[np.ndarray, np.ndarray]:
        # Image and mask are generated together and usually read one after the other.
        last = self._last
        if last is None or last[0] != case.id:
            index = int(case.id.rsplit("_", 1)[1])
            recipe = PHANTOMS[self.kind]
            patient = recipe.patient(_generator(self.seed, self.kind, "patient", index // recipe.per_patient))
            image, mask = recipe.draw(_generator(self.seed, self.kind, "image", index), patient, self.size)
            last = self._last = (case.id, image, mask)
        return last[1].copy(), last[2].copy()


def phantom(
    name: str, *, n: int | None = None, size: int | tuple[int, ...] | None = None, seed: int | None = None
) -> PhantomSource:
    """Return a generated data set.

    Args:
        name: ``glands``, ``lesions``, ``pupils``, ``vessels`` (2D) or ``atrium`` (3D), optionally with options as on the
            command line: ``glands?n=80&size=96&seed=3``, ``atrium?size=64x64x48``.
        n: number of cases.
        size: size of all axes, or one size per axis; at least 32.
        seed: random seed; default 0.

    Example:
        >>> phantom("glands", n=6, size=64).cases[0].id
        'glands_0000'
    """
    kind_name, _, query = name.removeprefix("phantom:").partition("?")
    if kind_name not in PHANTOMS:
        raise HebbsegError(f"Unknown phantom {kind_name!r}. {did_you_mean(kind_name, PHANTOMS)}")
    kind = PHANTOMS[kind_name]
    given = {key: value for key, value in (("n", n), ("size", size), ("seed", seed)) if value is not None}
    written = _parse_options(f"phantom:{kind_name}", query)
    twice = sorted(given.keys() & written.keys())
    if twice:
        raise HebbsegError(f"{name}: {twice[0]} is given twice. Keep one of them.")
    return _checked(kind_name, **{"n": kind.n, "size": kind.size, "seed": 0, **given, **written})


def _checked(name: str, *, n: int, size: int | tuple[int, ...], seed: int) -> PhantomSource:
    kind = PHANTOMS[name]
    dims = len(kind.size)
    size = (size,) * dims if isinstance(size, int) else tuple(size)
    if not 1 <= n <= MOST:
        raise HebbsegError(f"phantom:{name}: n={n}, but n must be from 1 to {MOST}. Example: phantom:{name}?n={kind.n}")
    if len(size) != dims or min(size) < SMALLEST_SIDE:
        raise HebbsegError(
            f"phantom:{name}: size={_joined(size)}, but allowed are one or {dims} integers of at least "
            f"{SMALLEST_SIDE}. Example: phantom:{name}?size={_joined(kind.size)}"
        )
    if math.prod(size) * kind.channels > max_pixels():
        raise HebbsegError(f"phantom:{name}: size={_joined(size)} has more pixels than {VARIABLE} allows ({max_pixels()}).")
    if seed < 0:
        raise HebbsegError(f"phantom:{name}: seed={seed}, but seed must be at least 0.")
    return PhantomSource(kind=name, n=n, size=size, seed=seed)


def _parse_options(spec: str, query: str) -> dict[str, Any]:
    """Parse ``n=80&size=96x96`` into {"n": 80, "size": (96, 96)}."""
    options: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in ("n", "size", "seed"):
            raise HebbsegError(f"{spec}: unknown option {key!r}. {did_you_mean(key, ('n', 'size', 'seed'))}")
        if key in options:
            raise HebbsegError(f"{spec}: {key} is given twice. Keep one of them.")
        try:
            numbers = tuple(int(part) for part in text.split("x"))
        except ValueError:
            raise HebbsegError(f"{spec}: {key}={text!r} is not an integer. Example: {spec}?n=80&size=96&seed=3") from None
        if len(numbers) > 1 and key != "size":
            raise HebbsegError(f"{spec}: {key}={text!r}: only size can have several values, such as size=64x64x48.")
        options[key] = numbers[0] if len(numbers) == 1 else numbers
    return options


def _joined(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))


def _generator(seed: int, kind: str, what: str, index: int) -> np.random.Generator:
    word = int.from_bytes(digest(kind, what)[:8], "little")
    return np.random.default_rng(np.random.SeedSequence([seed, word, index]))
