"""What stage 1 did to each layer, as a table for the terminal."""

from rich.table import Table

from hebbseg.hebbian.diagnostics import LayerDiagnostics


def table(diagnostics: dict[str, LayerDiagnostics], title: str = "Hebbian learning, layer by layer") -> Table:
    """A table for the terminal."""
    answer = Table(title=title)
    answer.add_column("layer")
    for heading in ("units", "moved", "effective units", "mean |cos|", "effective rank", "norm"):
        answer.add_column(heading, justify="right")
    for name, layer in diagnostics.items():
        effective = "–" if layer.effective_units is None else f"{layer.effective_units:.1f}"
        numbers = (f"{layer.moved:.1%}", effective, f"{layer.cosine:.3f}", f"{layer.rank:.1f}", f"{layer.norm:.3f}")
        answer.add_row(name or "(the layer itself)", str(layer.units), *numbers)
    return answer
