"""Answers, in the words of the specification."""

from __future__ import annotations

from typing import Any

from inver.domain.lance import Totals
from inver.domain.locations import Location
from inver.services.credentials import Vended
from inver.services.lance.types import Described, Placed, Version


def version(shown: Version) -> dict[str, Any]:
    return {
        "version": shown.version,
        "manifest_path": shown.path,
        "manifest_size": shown.size,
        "timestamp_millis": shown.at,
        "metadata": shown.metadata,
    }


def declared(placed: Placed, options: dict[str, str]) -> dict[str, Any]:
    return {
        "location": placed.table.location,
        "storage_options": options,
        "properties": placed.properties,
        "managed_versioning": True,
    }


def left(placed: Placed, given: tuple[str, ...]) -> dict[str, Any]:
    """A table that is no more; its id is the one that was asked with."""
    return {"id": given, "location": placed.table.location, "properties": placed.properties}


def described(shown: Described, options: dict[str, str], with_uri: bool, detailed: bool) -> dict[str, Any]:
    """`version` and `schema` are always there: LanceDB's own client opens no table without them."""
    placed = shown.placed
    answer = {
        **declared(placed, options),
        "version": shown.version,
        "schema": shown.schema,
        "is_only_declared": shown.declared,
    }
    if with_uri:
        answer["table_uri"] = Location.parse(placed.table.location).canonical
    if detailed:
        answer["table"] = placed.name[-1]
        answer["namespace"] = placed.name[:-1]
        answer["metadata"] = shown.metadata
        if shown.totals.fragments is not None:
            answer["stats"] = {
                "num_deleted_rows": shown.totals.deleted,
                "num_fragments": shown.totals.fragments,
            }
    return answer


def stats(totals: Totals) -> dict[str, Any]:
    return {
        "total_bytes": totals.bytes or 0,
        "num_rows": totals.rows or 0,
        "num_indices": totals.indices,
        "fragment_stats": {
            "num_fragments": totals.fragments or 0,
            "num_small_fragments": totals.small_fragments or 0,
            "lengths": totals.lengths or dict.fromkeys(("min", "max", "mean", "p25", "p50", "p75", "p99"), 0),
        },
    }


def storage_options(vended: Vended) -> dict[str, str]:
    """Keys under the names that every reader of Lance knows; none where clients have their own."""
    keys = vended.keys
    if keys is None:
        return {}
    options = {"expires_at_millis": str(keys.expires_at)}
    if keys.access_key_id is not None and keys.secret_access_key is not None:
        options["aws_access_key_id"] = keys.access_key_id
        options["aws_secret_access_key"] = keys.secret_access_key.reveal()
        if keys.session_token is not None:
            options["aws_session_token"] = keys.session_token.reveal()
    if keys.sas_token is not None:
        options["azure_storage_sas_token"] = keys.sas_token.reveal()
    if keys.oauth_token is not None:
        options["google_storage_token"] = keys.oauth_token.reveal()
    return options
