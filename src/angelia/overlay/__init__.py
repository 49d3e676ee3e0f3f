"""WHERE: brokers that find each other. Pan is the overlay of HERMES (4.4.1): Pastry, with requests."""

from angelia.overlay.ids import key_of
from angelia.overlay.pan import Application, Pan, PanSettings

__all__ = ["Application", "Pan", "PanSettings", "key_of"]
