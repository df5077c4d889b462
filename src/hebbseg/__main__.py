"""``python -m hebbseg`` is the command line."""

from hebbseg.cli import main

main()
