"""The diagnostics of stage 1 as a table for the terminal."""

from rich import box
from rich.table import Table

from hebbseg.hebbian.diagnostics import LayerDiagnostics


def table(diagnostics: dict[str, LayerDiagnostics]) -> Table:
    """Return a table with one row per layer that fits into 80 columns."""
    rows = Table(title="Hebbian learning, layer by layer", box=box.SIMPLE, pad_edge=False)
    rows.add_column("layer")
    for heading in ("units", "moved", "effective\nunits", "mean\n|cos|", "effective\nrank", "norm"):
        rows.add_column(heading, justify="right")
    for name, layer in diagnostics.items():
        effective = "–" if layer.effective_units is None else f"{layer.effective_units:.1f}"
        numbers = (f"{layer.moved:.1%}", effective, f"{layer.cosine:.3f}", f"{layer.rank:.1f}", f"{layer.norm:.3f}")
        rows.add_row(name or "(the layer itself)", str(layer.units), *numbers)
    return rows
