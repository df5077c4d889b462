"""Every way of stage 2, by the name the command line uses."""

from hebbseg.methods.base import Method
from hebbseg.methods.supervised import Supervised

METHODS: dict[str, type[Method]] = {"supervised": Supervised}
