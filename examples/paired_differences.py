# %% [markdown]
# # Paired differences of finished runs
# `hebbseg report RUNS --tables FOLDER` writes `runs.csv`, one row per run. Runs of the same seed share split, batches
# and augmentation, so their difference leaves out what both have in common. This example reads the runs of the study on
# GlaS in `studies/results`.

# %%
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy import stats

table = Path("studies/results/study-glas/runs.csv")
with table.open(encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
dice: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
for row in rows:
    dice[row["labelled_percent"], row["arm"]][row["seed"]] = float(row["dice"])

# %% [markdown]
# The mean over the seeds that both arms have, with its 90 % t-interval. If the interval includes zero, there is no
# detectable effect.


# %%
def paired(regime: str, arm: str, baseline: str) -> str:
    ours, theirs = dice[regime, arm], dice[regime, baseline]
    seeds = sorted(ours.keys() & theirs.keys())
    differences = np.array([ours[seed] - theirs[seed] for seed in seeds])
    half = stats.t.ppf(0.95, len(seeds) - 1) * differences.std(ddof=1) / np.sqrt(len(seeds))
    return f"{differences.mean():+.1f} ± {half:.1f} (n = {len(seeds)})"


for regime in ("1", "2", "5", "10", "20"):
    print(f"{regime:>2} %  Hebbian − scratch {paired(regime, 'Hebbian SWTA', 'Supervised')}")
