"""Care on the wire: what is known, what is planned, who runs what."""

from __future__ import annotations

import msgspec

from inver.domain.care import Ticket
from inver.domain.grants import Action
from inver.domain.runs import Policy
from inver.domain.uuids import is_uuid
from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.management import care_wire as wire
from inver.protocols.management.catalogs import CATALOG
from inver.protocols.management.coding import caller, decode, ok, page_size, page_start, table_name, whole
from inver.protocols.management.endpoint import PAGE, Endpoint, Param
from inver.protocols.management.tables import TABLE
from inver.services.maintenance.services import CareServices
from inver.services.names import TableRef

_start = msgspec.json.Decoder(wire.StartCare).decode
_next = msgspec.json.Decoder(wire.NextCare).decode
_beat = msgspec.json.Decoder(wire.Heartbeat).decode
_finish = msgspec.json.Decoder(wire.FinishCare).decode
_policy = msgspec.json.Decoder(Policy).decode

RUN = "/care/runs/{id}"
MOST_SECONDS = 10**9
_CATALOG = Param("catalog", "Only tables of this catalog.")
_BUDGET = Param(
    "budget_seconds", "As many steps as this time pays for.", "integer", least=0, most=MOST_SECONDS
)


class CareRoutes:
    def __init__(self, care: CareServices) -> None:
        self._care = care

    def endpoints(self) -> list[Endpoint]:
        return [*self._knowing(), *self._running(), *self._policies()]

    def _knowing(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/care/tables",
                self.list_care,
                "care",
                "List what is known of tables, and what is worth doing to them",
                params=(_CATALOG, *PAGE),
                returns=wire.CareTableList,
            ),
            Endpoint(
                "GET",
                TABLE + "/care",
                self.get_care,
                "care",
                "Show what is known of a table, with its policy and pins",
                returns=wire.CareDetails,
            ),
            Endpoint(
                "GET",
                "/care/plan",
                self.plan_care,
                "care",
                "Show what would be done next, best first",
                params=(_CATALOG, _BUDGET, PAGE[1]),
                returns=wire.CarePlan,
            ),
        ]

    def _running(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST",
                "/care/runs",
                self.start_care,
                "care",
                "Start a run of one job on one table",
                body=wire.StartCare,
                returns=Ticket,
                status=201,
            ),
            Endpoint(
                "POST",
                "/care/runs/next",
                self.next_care,
                "care",
                "Start a run of the best step of the plan that nobody has",
                body=wire.NextCare,
                returns=wire.NextTicket,
            ),
            Endpoint(
                "POST",
                RUN + "/heartbeat",
                self.care_heartbeat,
                "care",
                "Hold the lease of a run, and tell how far it is",
                body=wire.Heartbeat,
                status=204,
            ),
            Endpoint(
                "POST",
                RUN + "/finish",
                self.finish_care,
                "care",
                "End a run, and tell what came of it",
                body=wire.FinishCare,
                status=204,
            ),
            Endpoint(
                "GET",
                "/care/runs",
                self.list_runs,
                "care",
                "List runs, newest first",
                params=PAGE,
                returns=wire.RunList,
            ),
            Endpoint(
                "GET",
                RUN,
                self.get_run,
                "care",
                "Show a run, with the files that a dry run would delete",
                returns=wire.RunShown,
            ),
            Endpoint(
                "GET",
                TABLE + "/care/runs",
                self.table_runs,
                "care",
                "List the runs of a table, newest first",
                params=PAGE,
                returns=wire.RunList,
            ),
        ]

    def _policies(self) -> list[Endpoint]:
        found = []
        for path, what, get, put, drop in (
            (CATALOG, "catalog", self.catalog_policy, self.set_catalog_policy, self.drop_catalog_policy),
            (TABLE, "table", self.table_policy, self.set_table_policy, self.drop_table_policy),
        ):
            place = path + "/care/policy"
            found += [
                Endpoint("GET", place, get, "care", f"Show the care policy of a {what}", returns=Policy),
                Endpoint(
                    "PUT", place, put, "care", f"Set the care policy of a {what}", body=Policy, returns=Policy
                ),
                Endpoint("DELETE", place, drop, "care", f"Drop the care policy of a {what}", status=204),
            ]
        return found

    async def list_care(self, request: Request) -> Response:
        limit = page_size(request)
        found = await self._care.knowledge.page(
            caller(request), request.param("catalog"), _after(request), limit + 1
        )
        now = self._care.now()
        shown = [wire.CareTable.of(each, now) for each in found[:limit]]
        return ok(wire.CareTableList(shown, shown[-1].table_id if len(found) > limit else None))

    async def get_care(self, request: Request) -> Response:
        seen, pins = await self._care.knowledge.get(caller(request), table_name(request))
        return ok(wire.CareDetails.with_pins(seen, self._care.now(), pins))

    async def plan_care(self, request: Request) -> Response:
        limit = page_size(request)
        text = request.param("budget_seconds")
        budget = None if text is None else whole(text, "budget_seconds")
        if budget is not None and budget > MOST_SECONDS:
            raise Invalid(f"budget_seconds must be from 0 to {MOST_SECONDS}", field="budget_seconds")
        plan = await self._care.knowledge.plan(caller(request), Action.LOAD, request.param("catalog"), budget)
        return ok(
            wire.CarePlan(
                steps=[wire.StepShown.of(seen, step) for seen, step in plan[:limit]],
                count=len(plan),
                cost_seconds=round(sum(step.cost_seconds for _, step in plan), 3),
            )
        )

    async def start_care(self, request: Request) -> Response:
        body = decode(request, _start)
        ticket = await self._care.running.start(
            caller(request), body.table.ref(), body.job, body.worker, body.options, body.dry_run
        )
        return ok(ticket, 201)

    async def next_care(self, request: Request) -> Response:
        body = decode(request, _next)
        ticket = await self._care.running.next(caller(request), body.worker, body.jobs, body.formats)
        return ok(wire.NextTicket(ticket))

    async def care_heartbeat(self, request: Request) -> Response:
        body = decode(request, _beat)
        await self._care.running.beat(caller(request), _run_id(request), body.progress, body.message)
        return Response(204)

    async def finish_care(self, request: Request) -> Response:
        body = decode(request, _finish)
        await self._care.running.finish(caller(request), _run_id(request), body.result())
        return Response(204)

    async def list_runs(self, request: Request) -> Response:
        return await self._runs(request, None)

    async def get_run(self, request: Request) -> Response:
        return ok(wire.RunShown.of(await self._care.running.get(caller(request), _run_id(request))))

    async def table_runs(self, request: Request) -> Response:
        return await self._runs(request, table_name(request))

    async def catalog_policy(self, request: Request) -> Response:
        return ok(await self._care.policies.get(caller(request), (request.args[0],)))

    async def set_catalog_policy(self, request: Request) -> Response:
        policy = decode(request, _policy)
        return ok(await self._care.policies.put(caller(request), (request.args[0],), policy))

    async def drop_catalog_policy(self, request: Request) -> Response:
        await self._care.policies.drop(caller(request), (request.args[0],))
        return Response(204)

    async def table_policy(self, request: Request) -> Response:
        return ok(await self._care.policies.get(caller(request), _name(request)))

    async def set_table_policy(self, request: Request) -> Response:
        policy = decode(request, _policy)
        return ok(await self._care.policies.put(caller(request), _name(request), policy))

    async def drop_table_policy(self, request: Request) -> Response:
        await self._care.policies.drop(caller(request), _name(request))
        return Response(204)

    async def _runs(self, request: Request, ref: TableRef | None) -> Response:
        limit = page_size(request)
        found, token = await self._care.running.history(caller(request), ref, _after(request), limit)
        return ok(wire.RunList([wire.RunShown.of(each) for each in found], token))


def _run_id(request: Request) -> str:
    run_id = request.args[0]
    if not is_uuid(run_id):
        raise Invalid("the id of a run is a UUID", field="id")
    return run_id.lower()


def _after(request: Request) -> str:
    token = page_start(request)
    if token and not is_uuid(token):
        raise Invalid("page_token is not one of this server", field="page_token")
    return token.lower()


def _name(request: Request) -> tuple[str, ...]:
    return table_name(request).name or ()
