"""The simulator's error."""

from angelia.errors import AngeliaError

__all__ = ["SimulationError"]


class SimulationError(AngeliaError, ValueError):
    """A simulation was asked for what it cannot do."""
