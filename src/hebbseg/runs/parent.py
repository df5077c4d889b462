"""Continuing from an earlier run (``--from RUN``): its settings, and its weights with the output layer."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hebbseg.config import FLAT_NAMES, Settings
from hebbseg.data.cases import ClassInfo, Source
from hebbseg.data.progress import Reporter
from hebbseg.data.sources.files import FileSource
from hebbseg.errors import HebbsegError
from hebbseg.inference.model_description import ModelDescription
from hebbseg.networks.factory import MONAI, UNET, build_network, declared_shapes
from hebbseg.networks.model_file import load_model
from hebbseg.pretraining.initializers import Initialized
from hebbseg.runs.context import RunContext
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.stages import SEEDS_APART, Initialize

MODEL = "model.safetensors"
OF_SPLIT = ("protocol", "folds", "fold", "folds_by", "test", "split_seed")
OF_RUN = ("data", "labelled", *OF_SPLIT)  # settings of the data section that are not taken from the earlier run


def continued_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run together with those that ``from_run`` implies; unchanged without it.

    The network, the size and normalization of images and the options of reading are those of the earlier run; those of
    reading can be given again. The initial weights are its model.
    """
    if not given.get("from_run"):
        return dict(given)
    folder = RunFolder(Path(str(given["from_run"])))
    stored = _settings_of(folder).flat()
    name = stored["network"]
    if name != UNET and not name.startswith(f"{MONAI}.") and given.get("network") != name:
        raise HebbsegError(
            f"--from {folder.path}: its run.json names the network {name!r}, which training imports. If you trust this folder, "
            f"pass --network {shlex.quote(name)}."
        )
    for option in (*OF_SPLIT, "init", "init_options"):
        if option in given:
            what = "the initial weights come" if option.startswith("init") else "the split comes"
            raise HebbsegError(f"{option}={given[option]} and --from {folder.path}: {what} from that run. Omit {option}.")
    described = ModelDescription.of(load_model(folder / MODEL)[1], trust=True)
    network = {option: stored[option] for option, (section, _, _) in FLAT_NAMES.items() if section == "network"}
    if name == UNET:
        network |= {"strides": "none", "kernels": "none"}  # of a model that does not name them
        network |= {option: value for option, value in described.network["options"].items() if option in network}
    network |= {
        "size": "native" if described.preprocessing["size"] is None else list(described.preprocessing["size"]),
        "spacing": "native" if described.preprocessing["spacing"] is None else list(described.preprocessing["spacing"]),
        "normalize": described.preprocessing["normalize"],
        "patch": "none" if described.window is None else list(described.window),
    }
    for option, value in (network | {"borders": described.borders}).items():  # borders are one more output
        if option in given and _plain(given[option]) != _plain(value):
            shown = _plain(value).replace(",", "x") if option in ("size", "patch") else _plain(value)
            raise HebbsegError(f"{option}={given[option]} and --from {folder.path}: that run has {option}={shown}. Omit it.")
    reading = [option for option, (section, _, _) in FLAT_NAMES.items() if section == "data" and option not in OF_RUN]
    kept = {option: stored[option] for option in reading if stored[option] is not None}
    return kept | dict(given) | network | {"init": str((folder / MODEL).absolute()), "from_run": str(folder.path.absolute())}


def weights_of_parent(settings: Settings, source: Source, reporter: Reporter) -> Initialize | None:
    """Return the initialization with the weights of the earlier run, or None if the run does not continue one."""
    if settings.pretrain.from_run is None:
        return None
    run = Path(settings.pretrain.from_run)
    if settings.pretrain.init != str(run / MODEL):
        raise HebbsegError(f"from_run={run}: it is an option of `hebbseg train` and Segmenter.train, not of a recipe.")
    weights, description = load_model(run / MODEL)
    described = ModelDescription.of(description, trust=True)
    old = described.class_infos
    new_index = match_classes(old, source.classes, run=str(run), data=source.name)
    added = [_name(info) for info in source.classes if info.index not in new_index.values()]
    of_output = "The output layer is kept."
    if added:
        of_output = f"The output layer grows by {', '.join(added)}; the weights of {', '.join(map(_name, old))} are kept."
    reporter.say(f"continuing from {run}. {of_output}")

    if described.borders:
        new_index[len(old)] = len(source.classes)  # the border is the last output

    def initialize(context: RunContext, number: int) -> tuple[nn.Module, Initialized]:
        options = context.network_options(context.outputs)
        network = build_network(**options, seed=settings.run_seed + number * SEEDS_APART)
        # The further networks of a method must differ from the first, so their output layers are new.
        grown = grown_weights(options, network.state_dict(), weights, new_index if number == 0 else {})
        network.load_state_dict(grown)
        return network.to(context.fabric.device), Initialized()

    return initialize


def in_grid_of_parent(settings: Settings, source: Source) -> Source:
    """Return the source with the order of axes and the orientation of the earlier run, if the run continues one."""
    if settings.pretrain.from_run is None or not isinstance(source, FileSource):
        return source
    described = ModelDescription.of(load_model(Path(settings.pretrain.from_run) / MODEL)[1], trust=True)
    return source if "stored" in (source.axes, described.axes) else source.in_grid(described.axes, described.orientation)


def match_classes(old: Sequence[ClassInfo], new: Sequence[ClassInfo], *, run: str, data: str) -> dict[int, int]:
    """Return the new index of each old class: by names if all are found, else by mask values.

    Raises:
        HebbsegError: an old class is not among the new ones.
    """
    by_name, by_value = {info.name: info.index for info in new}, {info.value: info.index for info in new}
    if all(info.name and info.name in by_name for info in old):
        return {info.index: by_name[info.name] for info in old}
    if all(info.value in by_value for info in old):
        return {info.index: by_value[info.value] for info in old}
    missing = [_name(info) for info in old if info.name not in by_name and info.value not in by_value]
    label_map = ";".join(f"{info.name or info.index}={_value(info)}" for info in old)
    raise HebbsegError(
        f"--from {run}: its classes are {', '.join(map(_name, old))}; those of {data} are {', '.join(map(_name, new))}"
        f"{f' ({missing[0]} is missing)' if missing else ''}. Classes can be added, not removed or exchanged. If the masks "
        f"have these values, name them: --label-map {shlex.quote(label_map)} and the new classes. To keep all weights but the "
        f"output layer, use --init {shlex.quote(f'{run}/{MODEL}')}."
    )


def grown_weights(
    options: Mapping[str, Any], fresh: Mapping[str, Tensor], weights: Mapping[str, Tensor], new_index: Mapping[int, int]
) -> dict[str, Tensor]:
    """Return the weights of a network with more classes: those of the old classes at their new index, the others fresh.

    Args:
        options: keywords of `build_network` with the new number of classes.
        fresh: random weights of this network.
        weights: of the old network.
        new_index: old → new index of each class; empty for an output layer that is entirely fresh.
    """
    axes = _class_axes(options)
    grown = {}
    for name, values in fresh.items():
        old = weights.get(name)
        expected = list(values.shape)
        if name in axes and old is not None and axes[name] < old.ndim:
            expected[axes[name]] = old.shape[axes[name]]
        if old is None or list(old.shape) != expected:
            found = "absent" if old is None else tuple(old.shape)
            raise HebbsegError(f"--from: weights of {name} are {found} in the earlier model, {tuple(values.shape)} here.")
        if name not in axes:
            grown[name] = old
            continue
        grown[name] = values.clone()
        for source, target in new_index.items():
            grown[name].select(axes[name], target).copy_(old.select(axes[name], source))
    return grown


def _class_axes(options: Mapping[str, Any]) -> dict[str, int]:
    """Return the axis of classes in each weight of the output layer: the one that depends on the number of classes."""
    first, second = (_shapes({**options, "out_channels": options["out_channels"] + more}) for more in (0, 1))
    found = {}
    for name, shape in first.items():
        different = [axis for axis, (a, b) in enumerate(zip(shape, second[name], strict=True)) if a != b]
        if different:
            found[name] = different[0]
    return found


def _shapes(options: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    found = declared_shapes(options)
    return found or {name: tuple(value.shape) for name, value in build_network(**options).state_dict().items()}


def _settings_of(folder: RunFolder) -> Settings:
    missing = [name for name in ("run.json", "split.json", MODEL) if not (folder / name).is_file()]
    settings = folder.begun_with()
    if settings is not None and MODEL in missing:
        raise HebbsegError(
            f"--from {folder.path}: the run is not complete. Finish it with `hebbseg train --resume -o {folder.path}`."
        )
    if settings is None or missing:
        raise HebbsegError(
            f"--from {folder.path}: not a folder of `hebbseg train` ({', '.join(missing)} missing). To use weights alone, "
            "without their output layer and split, pass --init FILE."
        )
    return settings


def _plain(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text.replace("x", ",").replace("×", ",") if text[:1].isdigit() else text


def _name(info: ClassInfo) -> str:
    return f"{info.name} ({_value(info)})" if info.name else _value(info)


def _value(info: ClassInfo) -> str:
    return str(info.value) if isinstance(info.value, int) else "#" + "".join(f"{part:02x}" for part in info.value)
