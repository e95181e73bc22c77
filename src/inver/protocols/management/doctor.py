"""The examination on the wire."""

from __future__ import annotations

import msgspec

from inver.protocols.http import Request, Response
from inver.protocols.management.coding import caller, ok
from inver.protocols.management.endpoint import Endpoint
from inver.services.doctor import Check, Doctor, Status

TIME_S = 120.0


class Diagnosis(msgspec.Struct):
    """`healthy` when no check failed."""

    healthy: bool
    checks: list[Check]


class Retried(msgspec.Struct):
    count: int


class DoctorRoutes:
    def __init__(self, doctor: Doctor) -> None:
        self._doctor = doctor

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/doctor",
                self.examine,
                "server",
                "Examine the database, the storage and the clock",
                returns=Diagnosis,
                timeout=TIME_S,
            ),
            Endpoint(
                "POST",
                "/doctor/retry",
                self.retry_work,
                "server",
                "Try follow-up work again that was given up",
                returns=Retried,
            ),
        ]

    async def examine(self, request: Request) -> Response:
        checks = await self._doctor.examine(caller(request))
        healthy = all(check.status is not Status.FAILED for check in checks)
        return ok(Diagnosis(healthy, checks))

    async def retry_work(self, request: Request) -> Response:
        return ok(Retried(await self._doctor.retry(caller(request))))
