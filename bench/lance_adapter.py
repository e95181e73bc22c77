"""pylance's own REST adapter, as a peer: writes its port, and serves until its input ends.

Run by the Python of the client environment `lance`.
"""

from __future__ import annotations

import sys

import lance.namespace  # type: ignore[import-not-found,unused-ignore]

properties = {"root": sys.argv[1], "manifest_enabled": "true", "table_version_tracking_enabled": "true"}
adapter = lance.namespace.RestAdapter("dir", properties, port=0)
adapter.start()
print(adapter.port, flush=True)
sys.stdin.read()
