"""A Lance table as pylance sees it, and what pylance says when it gives up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from inver.domain.locations import Location
from inver.domain.tables import TableKind
from inver.errors import Conflict, Refused
from inver.pipeline.places import Place
from inver.pipeline.work import Work

MOUNT = "/lance"

# Writers were first: what this commit is about is not the table any more.
_OVERTAKEN = re.compile(
    r"commit conflict|incompatible transaction|preempted by concurrent|write contention", re.IGNORECASE
)
_UNKNOWN = re.compile(r"feature flag|not supported|unsupported|newer version of lance", re.IGNORECASE)


def connected(work: Work) -> tuple[Any, Any]:
    """The table at its newest version, and the library."""
    if work.ticket.kind is TableKind.VIEW:
        raise Refused("a view has no files to care for")
    import lance
    import lance_namespace

    properties = {"uri": f"{work.client.url}{MOUNT}"}
    if work.client.token is not None:
        properties["header.Authorization"] = f"Bearer {work.client.token}"
    namespace = lance_namespace.connect("rest", properties)
    with told():
        dataset = lance.dataset(
            namespace_client=namespace,
            table_id=list(work.ticket.name),
            storage_options=storage_options(work.place) or None,
        )
    return dataset, lance


@contextmanager
def told() -> Iterator[None]:
    """pylance's errors by what they mean for a job."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, NotImplementedError) as error:
        text = str(error)
        if _OVERTAKEN.search(text):
            raise Conflict("writers changed the table meanwhile") from error
        if _UNKNOWN.search(text):
            raise Refused(f"the table has what care does not know: {text.partition(chr(10))[0]}") from error
        raise


def storage_options(place: Place) -> dict[str, str]:
    """The worker's own keys, as Lance spells them."""
    given = place.options
    if Location.parse(place.location).scheme != "s3":
        return {}
    keys = {
        "aws_endpoint": given.endpoint,
        "aws_region": given.region,
        "aws_access_key_id": given.access_key,
        "aws_secret_access_key": given.secret_key and given.secret_key.reveal(),
        "aws_session_token": given.session_token and given.session_token.reveal(),
        "aws_allow_http": "true" if given.allow_http else None,
        "aws_virtual_hosted_style_request": None if given.path_style else "true",
    }
    return {key: value for key, value in keys.items() if value}


def numbers(dataset: Any) -> dict[str, float]:
    """Counted from the manifest, which is at hand."""
    found = dict.fromkeys(("files", "bytes", "rows", "files_with_deletes", "deleted_rows"), 0.0)
    found["version"] = dataset.version
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        found["files"] += 1
        found["files_with_deletes"] += bool(metadata.num_deletions)
        found["bytes"] += sum(file.file_size_bytes or 0 for file in metadata.files)
        found["deleted_rows"] += metadata.num_deletions
        found["rows"] += metadata.num_rows
    return found
