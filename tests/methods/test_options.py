import inspect
from pathlib import Path

import pytest
import torch

from hebbseg import UNet
from hebbseg.config import make_settings
from hebbseg.errors import HebbsegError
from hebbseg.methods import METHODS, make_method, method_help
from hebbseg.methods.base import Method, Parts
from hebbseg.methods.options import _shown, options_of
from hebbseg.pretraining.superpixels import SuperpixelEpisodes
from hebbseg.pretraining.vae import VariationalAutoEncoder
from tests.methods.tiny import method, network

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "methods"


def options_table(cls: type) -> str:
    """The options as a Markdown table; the pages in docs/reference/methods hold exactly this."""
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{o.name}` | {o.kind} | `{_shown(o.default)}` | {o.description} |" for o in options_of(cls)]
    return "\n".join(lines) if len(lines) > 2 else "None."


def test_defaults_of_the_papers():
    values = {name: {o.name: o.default for o in options_of(METHODS[name])} for name in METHODS}
    assert values["supervised"] == {}
    assert values["em"] == {"weight": 5.0, "ramp": "linear", "ramp_share": 1.0}
    assert values["uamt"] == {
        "weight": 0.2, "ramp": "sigmoid", "ramp_share": 1.0, "decay": 0.99, "noise": 0.1, "passes": 8,
    }  # fmt: skip
    assert values["cct"]["weight"] == 30 and values["cct"]["ramp_share"] == 0.1 and values["cct"]["decoders"] == 7
    assert values["cps"]["weight"] == 1.5 and values["cps"]["ramp"] == "constant"
    assert values["urpc"]["scales"] == 4 and values["urpc"]["weight"] == 0.2
    assert values["dtc"] == {
        "weight": 1.0, "ramp": "sigmoid", "ramp_share": 1.0, "distance_weight": 0.3, "steepness": 1500.0,
    }  # fmt: skip
    assert values["fixmatch"]["threshold"] == values["unimatch"]["threshold"] == 0.95
    assert values["bcp"]["box"] == 2 / 3 and values["bcp"]["weight"] == 0.5


@pytest.mark.parametrize("name", METHODS)
def test_every_option_is_explained_and_kept(name):
    m = method(name)
    for option in options_of(METHODS[name]):
        assert option.description and option.kind, option
        assert getattr(m, option.name) == option.default
        assert f"{option.name}=" in method_help(name)


@pytest.mark.parametrize("cls", [*METHODS.values(), VariationalAutoEncoder, SuperpixelEpisodes])
def test_constructors_take_keywords_only(cls):
    kinds = {p.kind for p in list(inspect.signature(cls.__init__).parameters.values())[1:]}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


def test_options_given_as_text_get_their_types():
    m = method("uamt", options={"passes": "4", "weight": "2", "ramp": "linear"})
    assert m.passes == 4 and isinstance(m.passes, int) and m.weight == 2.0 and m.ramp == "linear"
    assert method("bcp", options={"largest_part": "never"}).largest_part == "never"


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("uamt", {"pases": 4}, "Method uamt has no option 'pases'. Did you mean 'passes'"),
        ("uamt", {"passes": 0}, r"uamt, option passes=0 \(T, number of stochastic teacher passes.*greater than or equal to 1"),
        ("uamt", {"decay": 1}, "option decay=1 .*less than 1"),
        ("em", {"weight": "much"}, "option weight='much'.*number"),
        ("em", {"ramp": "steep"}, "option ramp='steep'.*'linear', 'sigmoid' or 'constant'"),
        ("supervised", {"weight": 1}, "supervised has no option 'weight'. It has no options"),
        ("cct", {"perturbations": "noise,dropp"}, "perturbations='noise,dropp'.*Did you mean 'drop'"),
        ("cct", {"decoders": 0}, r"option decoders=0 \(A, number of auxiliary decoders.*greater than or equal to 1"),
        ("uampt", {}, "Unknown method 'uampt'. Did you mean 'uamt'"),
        ("em", {"network": 1}, "no option 'network'"),
        ("em", {"augment": 1}, "no option 'augment'"),
    ],
)
def test_bad_options_are_named(name, options, words):
    with pytest.raises(HebbsegError, match=words):
        method(name, options=options)


def test_a_batch_without_unlabelled_images_is_explained():
    from tests.methods.tiny import batch, step

    labelled, _ = batch()
    for name in METHODS:
        if METHODS[name].uses_unlabelled:
            with pytest.raises(HebbsegError, match="unlabelled_batch"):
                method(name)(labelled, None, step())


@pytest.mark.parametrize("name", METHODS)
def test_the_page_of_a_method_has_its_options(name):
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert options_table(METHODS[name]) in page


@pytest.mark.parametrize("name, cls", [("vae", VariationalAutoEncoder), ("superpix", SuperpixelEpisodes)])
def test_the_page_of_an_initialization_has_its_options(name, cls):
    assert all(option.description for option in options_of(cls))
    assert options_table(cls) in (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_keeps_the_given_network_and_its_weights(name):
    net = network(seed=3)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    m = make_method(name, network=net, another=lambda: network(seed=4), loss="dice")
    assert m.network is net and type(net) is UNet
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)  # what is new draws from its own seed
    again = make_method(name, network=network(seed=3), another=lambda: network(seed=4), loss="dice")
    assert all(torch.equal(a, b) for a, b in zip(m.state_dict().values(), again.state_dict().values()))


def test_cps_starts_from_two_initializations():
    cps = make_method("cps", network=network(seed=3), another=lambda: network(seed=4), loss="dice")
    assert all(torch.equal(p, q) for p, q in zip(cps.second.parameters(), network(seed=4).parameters()))


def test_parts_are_the_base_constructor():
    """`Parts` says for subclasses what `Method` takes."""
    taken = set(inspect.signature(Method.__init__).parameters) - {"self"}
    assert taken == set(Parts.__annotations__)


def test_the_former_name_of_an_option_is_accepted():
    assert method("unimatch", options={"earned": True}).dice_gated
    assert make_settings("d", {"method": "unimatch", "method_options": {"earned": True}}).finetune.method_options == {
        "dice_gated": True
    }
    with pytest.raises(HebbsegError, match="earned is the former name"):
        make_settings("d", {"method": "unimatch", "method_options": {"earned": True, "dice_gated": True}})
    with pytest.raises(HebbsegError, match="Method fixmatch has no option 'earned'"):
        method("fixmatch", options={"earned": True})
