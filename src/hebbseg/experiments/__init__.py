"""Many runs by one file: what a grid leaves behind, and how its runs are told apart.

``hebbseg grid RECIPE.toml -o OUT`` makes

    OUT/recipe.toml          a copy of the recipe; a report counts the runs that it asks for
    OUT/runs/<id>/           one ordinary run folder each (`hebbseg.runs.folder`)
    OUT/stage1/<key>/        weights of stage 1 that several runs begin with
    OUT/logs/<id>.log        what the run said, and its traceback if it failed

run.json of such a run has, besides what every run has, the key "grid":

    {"recipe": "benchmark-small", "title": "…", "kind": "train" | "probe", "table": "sota", "dataset": "glas",
     "arm": "CPS + Hebbian", "gain_over": "CPS", "baseline": "Supervised", "axes": {"labelled": "10%", "seed": 0}}

"gain_over" and "baseline" are there where the recipe names them. Runs are paired that have the same dataset and the same
values on all axes that both have: an arm may leave an axis out (``without``), and then its one run stands beside every
value. Averages are over the axes seed and fold.

A probe (kind "probe") has no stage 2. Its summary.json is

    {"kind": "probe", "n": 80, "fitted": 9, "levels": {"encoder.level0": {"dice": 0.61}, …, "decoder.level0": {"dice": 0.7}}}

n test cases measured, a linear layer fitted on the pixels of so many labelled training cases, and for every level of
the network, in the order of the data's way through it, the mean Dice over test cases, as a fraction.
"""
