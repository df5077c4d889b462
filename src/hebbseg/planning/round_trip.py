"""Which working size keeps the detail of the masks: each mask is scaled down, scaled back and compared with itself."""

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.data.resampling import resized_mask, resized_probabilities

SHORT_SIDES = (128, 160, 192, 256, 320, 384, 512)
MULTIPLE = 16  # a UNet of five levels halves each side four times
MOST_PIXELS = 2**18
LEAST_DICE = 0.98
REFERENCE_PIXELS = 2**21  # larger masks are first scaled down to this size

Size = tuple[int, ...]


def candidate_sizes(median: Sequence[int], aspect: float) -> list[Size]:
    """Return the working sizes (height, width) to try, in ascending order.

    The short side is one of `SHORT_SIDES`, up to that of the images (images below 128 are enlarged to 128); the long side
    follows from the aspect ratio. Both are multiples of 16. Sizes of more than 2^18 pixels are left out.

    Args:
        median: median height and width of the images.
        aspect: median of height / width.

    >>> candidate_sizes((300, 400), 0.75)
    [(128, 176), (160, 208), (192, 256), (256, 336)]
    """
    longer = max(aspect, 1 / aspect)
    found: list[Size] = []
    for short in SHORT_SIDES:
        if short > max(min(median), SHORT_SIDES[0]):
            break
        wanted = short * longer / MULTIPLE
        # Rounding must not enlarge the long side beyond that of the images.
        multiples = math.floor(wanted) if short <= min(median) and MULTIPLE * round(wanted) > max(median) else round(wanted)
        long = max(short, MULTIPLE * multiples)
        if short * long <= MOST_PIXELS:
            found.append((short, long) if aspect <= 1 else (long, short))
    return found


def round_trip_dice(mask: Tensor, size: Sequence[int], classes: int) -> dict[int, float]:
    """Return the Dice of each foreground class in ``mask`` (*S) after scaling it to ``size`` and back.

        small = class of the largest area in each pixel;  back(p) = argmax_k interpolated [small = k](p)
        Dice_k = 2 |mask = k ∧ back = k| / (|mask = k| + |back = k|)

    It is the Dice of a network that predicts every mask perfectly at the working size.
    """
    small = resized_mask(mask, size, classes).long()
    shares = F.one_hot(small.where(small < classes, 0), classes).movedim(-1, 0).float()  # (*size) → (K, *size)
    back = resized_probabilities(shares, mask.shape).argmax(0)
    counted = mask < classes  # not pixels to ignore
    counts = torch.bincount(mask[counted].long() * classes + back[counted], minlength=classes**2)
    table = counts.reshape(classes, classes)  # (true class, class after the round trip)
    sums = table.sum(0) + table.sum(1)
    return {k: float(2 * table[k, k] / sums[k]) for k in range(1, classes) if table[k].sum()}


def reference_mask(mask: Tensor, classes: int) -> Tensor:
    """Return the mask, scaled down if it has more than `REFERENCE_PIXELS`."""
    if mask.numel() <= REFERENCE_PIXELS:
        return mask
    scale = math.sqrt(REFERENCE_PIXELS / mask.numel())
    return resized_mask(mask, [max(1, int(side * scale)) for side in mask.shape], classes)


def try_sizes(masks: Sequence[Tensor], sizes: Sequence[Size], classes: int) -> Iterator[tuple[Size, float]]:
    """Yield each size with the lowest Dice of a class (mean over the masks that contain it), up to the first that suffices.

    A size is given up as soon as the masks left cannot raise its Dice to `LEAST_DICE`; its Dice is then that of the masks
    seen so far.
    """
    present = [sum(bool((mask == k).any()) for mask in masks) for k in range(classes)]
    for size in sizes:
        found: dict[int, list[float]] = {}
        for mask in masks:
            for k, dice in round_trip_dice(mask, size, classes).items():
                found.setdefault(k, []).append(dice)
            if any(sum(dice) + present[k] - len(dice) < LEAST_DICE * present[k] for k, dice in found.items()):
                break
        worst = min((sum(dice) / len(dice) for dice in found.values()), default=0.0)
        yield size, worst
        if worst >= LEAST_DICE:
            return
