"""Errors of the pipeline."""

from __future__ import annotations

from angelia.errors import AngeliaError

__all__ = ["PipelineError"]


class PipelineError(AngeliaError, ValueError):
    """A job of the pipeline cannot run so; it says why."""
