"""The commands, one file each. Heavy imports are inside functions, so that ``--help`` stays fast."""
