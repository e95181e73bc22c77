"""What a commit can fail with, beside a value that is plainly wrong (`inver.errors.Invalid`)."""

from __future__ import annotations

from inver.errors import Conflict, Invalid


class IllegalArgument(Invalid):
    """Wrong in a way that clients know as an illegal argument, and tell apart from other refusals."""


class RequirementFailed(Conflict):
    """What the writer saw is no longer so; sending the same request again cannot succeed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Requirement failed: {reason}")


class StaleCommit(Conflict):
    """The requirements hold, but the snapshot is numbered for an older state: its writer must rebuild it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Validation failed, please retry: {reason}")
