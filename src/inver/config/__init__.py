"""What an operator can set: one frozen object, and where each of its values came from.

`inver.config.sources` reads a file, the environment and flags; this package alone knows no I/O.
"""

from inver.config.settings import (
    AuthSettings,
    LimitSettings,
    Setting,
    Settings,
    StorageSettings,
    settings_table,
)

__all__ = ["AuthSettings", "LimitSettings", "Setting", "Settings", "StorageSettings", "settings_table"]
