"""The simulator's error."""

from angelia.errors import AngeliaError

__all__ = ["SimulationError", "Violation"]


class SimulationError(AngeliaError, ValueError):
    """A simulation was asked for what it cannot do."""


class Violation(Exception):  # noqa: N818 - of what was promised, not an error of the caller
    """A router has not done what it promises."""
