"""The access epoch: a number that grows with every change of what somebody may do."""

from __future__ import annotations

BUMP_EPOCH = "UPDATE access_epoch SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch"
READ_EPOCH = "SELECT epoch FROM access_epoch WHERE id = 1"
LOCK_EPOCH = "SELECT epoch FROM access_epoch WHERE id = 1 {update}"
