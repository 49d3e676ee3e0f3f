"""`python -m angelia` is the command line."""

from angelia.cli import main

main()
