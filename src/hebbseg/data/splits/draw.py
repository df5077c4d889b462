"""Random selection of cases that keeps groups together.

The order is that of ``sha256("{seed}/{purpose}/{name}")`` rather than of a random number generator: it is the same on
every machine and in every library version, and adding a case does not reorder the others.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hebbseg.data.cases import Case
from hebbseg.data.progress import counted
from hebbseg.errors import HebbsegError
from hebbseg.seeding import digest

Unit = list[Case]


def drawn_order(names: Iterable[str], *, seed: int, purpose: str) -> list[str]:
    """Return the names in a random order that depends only on the names, the seed and the purpose.

    Example:
        >>> drawn_order(["b", "a", "c"], seed=0, purpose="labelled") == drawn_order("abc", seed=0, purpose="labelled")
        True
    """
    return sorted(names, key=lambda name: digest(seed, purpose, name))


def drawn_units(cases: Sequence[Case], *, seed: int, purpose: str, notes: list[str]) -> list[Unit]:
    """Return units of cases that stay together, in random order: one per group, or per case without a group.

    If all masks belong to a single group, each case becomes a unit and a note is added: keeping the group together
    would leave one set without masks.
    """
    units: dict[str, Unit] = {}
    for case in sorted(cases, key=lambda case: case.id):
        units.setdefault(f"case {case.id}" if case.group is None else f"group {case.group}", []).append(case)
    masked = [case for case in cases if case.has_mask]
    groups = {case.group for case in masked}
    if len(groups) == 1 and None not in groups and len(masked) > 1:
        notes.append(
            f"All cases with masks to draw {purpose} cases from belong to the one group {masked[0].group!r}: they were "
            "drawn one by one, so the same patient is on both sides and scores say nothing about other patients."
        )
        units = {f"case {case.id}": [case] for case in cases}
    return [units[name] for name in drawn_order(units, seed=seed, purpose=purpose)]


def masks_in(unit: Iterable[Case]) -> int:
    return sum(case.has_mask for case in unit)


def hold_out(units: Sequence[Unit], share: float, *, purpose: str) -> tuple[Unit, Unit]:
    """Return (kept, held-out) cases: whole units, about ``share`` of the masks, at least one mask in each."""
    with_masks = [unit for unit in units if masks_in(unit)]
    total = sum(map(masks_in, with_masks))
    if len(with_masks) < 2:
        raise HebbsegError(
            f"Drawing {purpose} cases needs masks of at least 2 cases or groups, but only {total} "
            f"{'case has a mask' if total == 1 else 'cases have masks'}. Add masks, or set {purpose}=0."
        )
    target = max(1, round(share * total))
    held: list[Unit] = []
    count = 0
    for unit in with_masks:
        grown = count + masks_in(unit)
        if abs(grown - target) < abs(count - target) and len(held) + 1 < len(with_masks):
            held.append(unit)
            count = grown
    if not held:
        # Every unit exceeds twice the target: take the smallest.
        held.append(min(with_masks, key=masks_in))
    held_out = [case for unit in held for case in unit]
    names = {case.id for case in held_out}
    return [case for unit in units for case in unit if case.id not in names], held_out


def folds_of(units: Sequence[Unit], folds: int) -> list[Unit]:
    """Return ``folds`` sets of whole units with masks, balanced in the number of masks (largest unit first)."""
    with_masks = [unit for unit in units if masks_in(unit)]
    if len(with_masks) < folds:
        raise HebbsegError(
            f"folds={folds}, but only {len(with_masks)} separate groups or cases have masks ({sum(map(masks_in, with_masks))} "
            f"masks). Use folds={max(2, len(with_masks))} or fewer, or the few-label protocol."
        )
    parts: list[Unit] = [[] for _ in range(folds)]
    counts = [0] * folds
    for unit in sorted(with_masks, key=masks_in, reverse=True):
        smallest = counts.index(min(counts))
        parts[smallest].extend(unit)
        counts[smallest] += masks_in(unit)
    return parts


@dataclass(frozen=True, kw_only=True)
class Regime:
    """The label regime: a fraction or a number of labelled cases, and its text."""

    text: str
    share: Fraction | None
    number: int | None

    @classmethod
    def parse(cls, labelled: str | float) -> "Regime":
        # Exact fractions: in floating point, 7 % of 100 is 7.000000000000001, rounded up to 8.
        text = str(labelled).strip()
        try:
            if text.endswith("%"):
                share = Fraction(text[:-1].strip()) / 100
            elif isinstance(labelled, float) or "." in text:  # settings keep 0.1 as text
                share = Fraction(text)
            else:
                number = int(text)
                if number >= 0:
                    return cls(text=str(number), share=None, number=number)
                raise ValueError
            if 0 < share <= 1:
                return cls(text=f"{float(share * 100):g}%", share=share, number=None)
            if share == 0:
                return cls(text="0", share=None, number=0)
        except (ValueError, ZeroDivisionError):
            pass
        raise HebbsegError(
            f"labelled={labelled!r}: allowed are a fraction of the training masks from 0% to 100% (such as 10% or 0.1) "
            "or a number of cases (such as 8)."
        )

    @property
    def is_nothing(self) -> bool:
        return self.number == 0

    def count(self, available: int, source: str) -> int:
        """Return the number of labelled cases, ceil(share · available) or the given number."""
        count = math.ceil(self.share * available) if self.share is not None else self.number
        if count is None or count > available or (count == 0 and not self.is_nothing):
            raise HebbsegError(
                f"{source}: labelled={self.text}, but the training set has {counted(available, 'case')} with masks. Add masks, "
                "request fewer labelled cases, or reduce the test or validation set (test=0 for none)."
            )
        return count
