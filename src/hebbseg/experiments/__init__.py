"""Grids of runs: folder layout, and the record that identifies each run.

``hebbseg grid RECIPE.toml -o OUT`` writes

    OUT/recipe.toml          copy of the recipe, and the options --small and --set; a report includes the runs it lists
    OUT/runs/<id>/           one run folder each (`hebbseg.runs.folder`)
    OUT/stage1/<key>/        stage-1 weights, shared by several runs
    OUT/logs/<id>.log        output of the run, with the traceback if it failed

run.json of these runs has the additional key "grid":

    {"recipe": "benchmark", "title": "…", "kind": "train" | "probe", "table": "sota", "dataset": "glas",
     "arm": "CPS + Hebbian", "order": 5, "gain_over": "CPS", "baseline": "Supervised",
     "axes": {"labelled": "10%", "fold": 0}}

"order" is the position of the arm in the recipe. "gain_over" and "baseline" are optional.

Runs are paired if they share the dataset and the values of all common axes: an
arm that drops an axis (``without``) is paired with every value of it. Means are taken over the axes seed and fold.

A probe (kind "probe") has no stage 2. Its summary.json is

    {"kind": "probe", "n": 80, "fitted": 9, "levels": {"encoder.level0": {"dice": 0.61, "dice_pooled": 0.63}, …}}

with the number of test cases, the number of labelled training cases the linear layers are fitted on, and the mean test
Dice and the pooled test Dice (fractions) of each level, in forward order.
"""
