"""The scheduler of care on the wire."""

from __future__ import annotations

from inver.domain.care import Scheduler
from inver.protocols.http import Request, Response
from inver.protocols.management.coding import caller, ok
from inver.protocols.management.endpoint import Endpoint
from inver.services.scheduling import Scheduling


class SchedulerRoutes:
    def __init__(self, scheduling: Scheduling) -> None:
        self._scheduling = scheduling

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/care/scheduler",
                self.scheduler,
                "care",
                "Show how the worker of this server stands",
                returns=Scheduler,
            )
        ]

    async def scheduler(self, request: Request) -> Response:
        return ok(await self._scheduling.state(caller(request)))
