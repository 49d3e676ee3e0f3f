"""`python -m angelia`: the command line."""

from angelia.cli import main

main()
