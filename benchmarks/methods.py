"""The cost of an update of every method, relative to a supervised update on as many images.

python -m benchmarks.methods NAME     prints the extra peak memory of one update of a method in MiB
"""

import sys
from collections.abc import Callable

import torch

from benchmarks.timing import Row, peak_mib, report_extra_peak, row, seconds
from hebbseg import UNet
from hebbseg.methods import METHODS, make_method
from hebbseg.methods.base import Labelled, Method, Step
from hebbseg.methods.ops import input_noise

LABELLED, UNLABELLED, SIZE = 4, 4, (128, 128)
# On the processor, large batches also cost page faults (glibc gives large blocks back at once).
# By counting forward (1) and backward (2) passes of encoder and decoder, and a little room:
# uamt's teacher sees 9 × 4 images forward beside 8 with gradient; unimatch 16 in the encoder and 20 in the decoder for 8;
# cct 8 in the encoder and 8 + 7 × 4 in decoders, and 2 × 4 forward and 4 backward for the adversarial perturbation.
AT_MOST = {
    "em": 1.2, "mean-teacher": 1.4, "uamt": 3.0, "cct": 4.0, "cps": 2.2, "urpc": 1.5, "dtc": 1.3, "fixmatch": 1.4,
    "unimatch": 2.7, "bcp": 1.4,
}  # fmt: skip
MEMORY_AT_MOST = {
    "em": 1.2, "mean-teacher": 1.3, "uamt": 2.5, "cct": 2.7, "cps": 2.2, "urpc": 1.5, "dtc": 1.2, "fixmatch": 1.3,
    "unimatch": 2.6, "bcp": 1.3,
}  # fmt: skip


def method(name: str) -> Method:
    made = make_method(name, network=UNet(seed=0), another=lambda: UNet(seed=1), loss="dice+ce")
    return made.train()


def update(name: str) -> Callable[[], None]:
    """One update in the middle of a training; ``supervised`` has masks for all images."""
    learner = method(name)
    known = LABELLED + (UNLABELLED if name == "supervised" else 0)
    generator = torch.Generator().manual_seed(0)
    labelled = Labelled(torch.rand(known, 3, *SIZE, generator=generator), torch.randint(2, (known, *SIZE), generator=generator))
    unlabelled = torch.rand(UNLABELLED, 3, *SIZE, generator=generator)
    optimizer = torch.optim.AdamW([p for p in learner.parameters() if p.requires_grad], lr=1e-4)
    step = Step(number=500, progress=0.5, generator=generator)

    def work() -> None:
        optimizer.zero_grad()
        torch.stack(list(learner(labelled, unlabelled, step).values())).sum().backward()
        optimizer.step()
        learner.after_step(step)

    return work


def teacher_passes(*, batched: bool) -> Callable[[], None]:
    teacher = UNet(seed=0).train()
    images = torch.rand(UNLABELLED, 3, *SIZE)
    generator = torch.Generator().manual_seed(0)

    @torch.no_grad()
    def work() -> None:
        if batched:
            teacher(input_noise(images.repeat(8, 1, 1, 1), generator, 0.1))
        else:
            for _ in range(8):
                teacher(input_noise(images, generator, 0.1))

    return work


def run() -> list[Row]:
    times = seconds({name: update(name) for name in METHODS}, rounds=5)
    passes = seconds({"batched": teacher_passes(batched=True), "looped": teacher_passes(batched=False)}, rounds=5)
    memory = {name: peak_mib("benchmarks.methods", name) for name in METHODS}
    images = f"{LABELLED} + {UNLABELLED} images"
    rows = [
        row(f"{name} update / supervised update on {images}", times[name], times["supervised"], at_most=limit)
        for name, limit in AT_MOST.items()
    ]
    rows += [
        row(f"{name} peak MiB / supervised peak MiB, {images}", memory[name], memory["supervised"], at_most=limit)
        for name, limit in MEMORY_AT_MOST.items()
    ]
    rows.append(row("uamt: 8 teacher passes in one batch / in a loop", passes["batched"], passes["looped"], at_most=1.1))
    return rows


if __name__ == "__main__":
    report_extra_peak(update(sys.argv[1]))
