"""`make demo`: a network of real brokers, real data, and a check that everybody got what they asked for."""

from angelia.demo.show import run

__all__ = ["run"]
