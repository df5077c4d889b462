"""``python -m hebbseg`` is the command line."""

from hebbseg.cli.app import main

if __name__ == "__main__":
    main()
