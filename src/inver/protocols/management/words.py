"""What the API's document says in words, beside what the types say themselves.

A field is looked up as `Type.field` and then as `field`, so that what means the same everywhere is
said once.
"""

from __future__ import annotations

from typing import Any

ABOUT = """\
Catalogs, schemas and tables of every format, transactions over them, events, principals, tokens and grants.

Send a token as `Authorization: Bearer <token>`. Times are milliseconds since 1970-01-01 UTC. Names are \
compared without regard to case. The names of nested schemas are joined by U+001F, which is `%1F` in a URL.

A change that was answered with 2xx is durable. A 4xx says that nothing was changed, and 503 that the same \
request may be sent again. Only 500 leaves the outcome open. Operations that take an `Idempotency-Key` take \
effect once, however often they are sent.

Every refusal is a problem as in RFC 9457, also the ones that HTTP itself asks for and that are not listed \
with each operation: 405, 408, 414 and 431. Every answer carries `X-Request-Id`, which is taken from the \
request where it has one."""

TAGS: dict[str, str] = {
    "catalogs": "The roots of all names.",
    "schemas": "What holds tables inside a catalog. Schemas can be nested.",
    "tables": "Tables of any format: made, described, renamed, dropped and brought back.",
    "transactions": "Changes of any number of tables that happen together or not at all.",
    "events": "Everything that happened, in order.",
    "principals": "Users, service accounts and groups.",
    "groups": "Who is in which group.",
    "tokens": "Bearer tokens, and client secrets for OAuth.",
    "grants": "Who may do what.",
    "search": "Names and columns.",
    "server": "The server itself.",
}

OPERATIONS: dict[str, str] = {
    "transact": "All operations take effect together or none does. A commit wins only if its table stands at "
    "the version before it; with the token of a commit that has already won it is a replay and succeeds.",
    "list_events": "With `wait` the answer is held back until there is an event or the time is over.",
    "oauth_token": "The client identifies itself in the form, or by HTTP Basic authentication, which wins.",
    "drop_table": "A managed table's files are deleted when its hold time ends, an external one's never.",
}

# Handlers that share their room's subject are named for it here; any other name stands for itself.
IDS: dict[tuple[str, str], str] = {
    ("principals", "create"): "create_principal",
    ("principals", "get"): "get_principal",
    ("principals", "alter"): "alter_principal",
    ("principals", "delete"): "delete_principal",
    ("groups", "members"): "list_members",
    ("grants", "list"): "list_grants",
    ("grants", "add"): "grant",
    ("events", "events"): "list_events",
    ("server", "info"): "server_info",
}

PATH_PARAMETERS: dict[str, tuple[str, str]] = {
    "catalogs/{catalog}": ("Name of the catalog.", "main"),
    "schemas/{schema}": ("Name of the schema; names of nested schemas joined by U+001F.", "sales"),
    "tables/{table}": ("Name of the table.", "orders"),
    "tables/{id}": ("Id of the table.", "01980000-0000-7000-8000-000000000000"),
    "transactions/{id}": ("Number of the transaction, which is that of its first event.", "42"),
    "cursors/{cursor}": ("Name of the cursor.", "orders-to-lance"),
    "principals/{name}": ("Name of the principal.", "etl"),
    "groups/{group}": ("Name of the group.", "analysts"),
    "members/{principal}": ("Name of the principal.", "etl"),
    "tokens/{id}": ("Id of the token.", "01980000000070008000000000000000"),
    "secrets/{id}": ("Id of the client secret.", "01980000-0000-7000-8000-000000000000"),
}

QUERY_EXAMPLES: dict[str, str] = {"q": "orders"}

PROBLEMS: dict[int, tuple[str, str]] = {
    400: ("Invalid", "A value is wrong; `field` says which."),
    401: ("Unauthenticated", "There is no token, or it is not valid any more."),
    403: ("Forbidden", "The caller may see this, and may not do it."),
    404: ("NotFound", "It is not there, or the caller may not see it."),
    409: (
        "Conflict",
        "It exists already, is not empty, or somebody was faster; `conflicts` says what won.",
    ),
    412: ("PreconditionFailed", "It has changed since the ETag in If-Match."),
    413: ("TooLarge", "The body is larger than the server takes."),
    415: ("ContentEncoding", "The body's content encoding is neither gzip nor deflate."),
    422: ("KeyReused", "The idempotency key was used for another request."),
    429: ("RateLimited", "Too many failed authentications from this address."),
    500: ("OutcomeUnknown", "Something unexpected; a change may or may not have been applied."),
    503: ("Unavailable", "Not applied; the same request may be sent again."),
}

TOKEN_REFUSALS: dict[int, str] = {
    400: "The form is not one for client credentials.",
    401: "The client id or the secret is not valid.",
}

_AT = "Milliseconds since 1970-01-01 UTC."
_BY = "Id of a principal."

FIELDS: dict[str, str] = {
    "access_token": "The bearer token.",
    "action": "For example `read`, `commit`, `create-table`, `drop`.",
    "allowed": "Whether it may.",
    "at": _AT,
    "because": "What speaks for it.",
    "branch": "Empty for the main branch.",
    "by": _BY,
    "bytes_added": "Size of what a commit added.",
    "bytes_removed": "Size of what a commit removed.",
    "catalog_id": "Id of the catalog.",
    "catalogs": "By name.",
    "client_id": "Id of the principal; its name is taken too.",
    "client_secret": "The secret.",
    "column": "The column that matched.",
    "columns": "Each in the words of the table's format; by its `name` it can be searched for.",
    "comment": "Free text.",
    "commits": "Newest first.",
    "conflicts": "What stood in the way, by operation.",
    "counts": "What the commit added and removed.",
    "created_at": _AT,
    "created_by": _BY,
    "current": "What was found instead: a version, an ETag or a cursor's value.",
    "cursor": "Name of the cursor.",
    "data": "What changed; `by` is the principal, `version` the table's version if it has a new one.",
    "database": "`sqlite` or `postgresql`.",
    "datacontenttype": "Always `application/json`.",
    "detail": "What is wrong, for people.",
    "disabled": "A disabled principal is refused everywhere.",
    "dropped_at": _AT,
    "error": "One of the codes of RFC 6749.",
    "error_description": "What is wrong, for people.",
    "events": "In the order in which they happened.",
    "expect": "Where the cursor must stand; null where there is none yet.",
    "expected": "What the request took for granted.",
    "expires_at": "Milliseconds since 1970-01-01 UTC; null for never.",
    "expires_in": "Seconds until the token expires.",
    "expires_in_s": "Seconds from now; null for never.",
    "field": "Where in the request the wrong value is.",
    "files_added": "Files that a commit added.",
    "files_removed": "Files that a commit removed.",
    "fix": "What would help.",
    "format": "The table format.",
    "full_name": "Catalog, schemas and table.",
    "grant_type": "Always `client_credentials`.",
    "granted_at": _AT,
    "granted_by": "Name of the principal that gave it.",
    "grants": "One for each privilege.",
    "groups": "Names of the groups that it is directly in.",
    "healthy": "Whether no check failed.",
    "id": "Stays the same under any name.",
    "invertransaction": "Number of the transaction that it belongs to.",
    "issued_token_type": "The kind of token, as RFC 8693 names it.",
    "kind": "What kind it is.",
    "label": "For people, to tell one from another.",
    "last_event": "Sequence number of the newest event.",
    "last_used_at": "Milliseconds since 1970-01-01 UTC, within a minute; null for never.",
    "location": "Where its files are; for an external table only.",
    "matched": "Whether the `name` matched or a `column`.",
    "members": "Who is directly in the group.",
    "missing": "What would be needed besides.",
    "name": "Unique among its neighbours.",
    "next": "What to give as `after` the next time.",
    "next_page_token": "What to give as `page_token` for the next page; null on the last one.",
    "op": "Which operation this is.",
    "operation": "What the commit did, in the writer's words.",
    "operations": "Decided in this order.",
    "owner": "Id of the principal that owns it.",
    "path": "Its names below the catalog, the outermost first.",
    "payload": "Any JSON; kept with the commit byte for byte.",
    "principal": "Name of the principal.",
    "principals": "By name.",
    "privilege": "The privilege, by its name in Unity Catalog.",
    "privileges": "For example `SELECT`, `MODIFY`, `USE SCHEMA`.",
    "properties": "Text by name.",
    "reason": "`version-taken`, `version-gap`, `branch-exists`, `etag-changed` or `cursor-moved`.",
    "replayed": "Whether this had been decided before.",
    "report": "In the client's words.",
    "reports": "Newest version first.",
    "request_id": "Also in the server's log.",
    "results": "One for each operation, in order.",
    "revoked_at": "Milliseconds since 1970-01-01 UTC; null while it is valid.",
    "rows_added": "Rows that a commit added.",
    "rows_removed": "Rows that a commit removed.",
    "schema_id": "Id of the schema.",
    "schemas": "By name.",
    "scope": "`all` that the principal may do, or only to `read`.",
    "secrets": "Without the secrets themselves.",
    "securable": "On what.",
    "source": "The installation, as a URN.",
    "specversion": "Always `1.0`.",
    "state": "Where the table is in its life.",
    "status": "The status of the answer.",
    "storage_root": "Where managed tables below it are put; the server's warehouse where it is null.",
    "subject": "Id of what it is about.",
    "table": "By id or by name.",
    "tables": "By name.",
    "time": "As in RFC 3339, in UTC.",
    "title": "The kind of problem in words.",
    "to": "The new full name: catalog, schemas, table.",
    "token": "Identifies the attempt to commit.",
    "token_type": "Always `bearer`.",
    "tokens": "Without the secrets themselves.",
    "transaction": "Number of the transaction.",
    "TransactionResult.transaction": "Its number; `0` where nothing had to change.",
    "type": "What happened.",
    "updated_at": _AT,
    "updated_by": _BY,
    "value": "Where the cursor stands.",
    "version": "Of the table.",
    "winner": "The commit that holds the version.",
    "AlterDescription.comment": "Null takes it away.",
    "AlterDescription.owner": "Name of the principal that is to own it.",
    "AlterDescription.properties": "All of them, in place of the ones before.",
    "AlterPrincipal.comment": "Null takes it away.",
    "AlterTable.comment": "Null takes it away.",
    "AlterTable.owner": "Name of the principal that is to own it.",
    "AlterTable.properties": "All of them, in place of the ones before.",
    "Check.detail": "What was found.",
    "Check.name": "What was examined.",
    "Check.status": "How it went.",
    "CloudEvent.id": "The event's sequence number.",
    "CommitOp.version": "The version to make, one past the branch's newest.",
    "ConflictInfo.operation": "Index of the operation in the request.",
    "CreateBranchOp.branch": "Name of the new branch.",
    "CreateBranchOp.version": "The version to start from.",
    "CreateTable.kind": "The server places a managed table; an external one lies where `location` says.",
    "CreateTable.version": "The version that the table starts with.",
    "CreateTableOp.kind": "The server places a managed table; an external one lies where `location` says.",
    "CreateTableOp.name": "The full name: catalog, schemas, table.",
    "CreateTableOp.version": "The version that the table starts with.",
    "CreateToken.principal": "Whose token; the caller's by default.",
    "Diagnosis.checks": "In the order in which they were made.",
    "Explanation.principal": "Name of the principal that was asked about.",
    "MoveCursorOp.value": "Where the cursor is to stand; null takes it away.",
    "NewToken.token": "The bearer token.",
    "OperationResult.id": "Id of the table, or name of the cursor.",
    "OperationResult.version": "The new version, for a commit.",
    "Problem.type": "A URN for the kind of problem.",
    "SearchHit.name": "The full name.",
    "SearchResults.results": "By name.",
    "SecurableName.name": "Catalog, schemas, table, as far down as it goes.",
    "SecurableShown.name": "Catalog, schemas, table, as far down as it goes.",
    "ServerInfo.name": "Always `inver`.",
    "ServerInfo.version": "Of the server.",
    "TableInfo.location": "Where its files are.",
    "TableName.name": "Catalog, schemas, table.",
    "TransactionInfo.transaction": "Its number.",
    "UndropTable.to": "Another full name, if the old one is taken; null for the old one.",
    "UndropTableOp.to": "Another full name, if the old one is taken; null for the old one.",
    "Whoami.groups": "Names of the groups that the caller is in.",
}

_ORDERS = ["main", "sales", "orders"]

EXAMPLES: dict[str, Any] = {
    "AlterDescription": {"comment": "What was sold", "properties": {"team": "sales"}},
    "AlterPrincipal": {"disabled": True},
    "AlterTable": {"comment": "One row per order", "properties": {"team": "sales"}},
    "AskExplanation": {
        "principal": "etl",
        "action": "read",
        "securable": {"kind": "table", "name": _ORDERS},
    },
    "ChangeGrants": {
        "principal": "etl",
        "privileges": ["SELECT"],
        "securable": {"kind": "table", "name": _ORDERS},
    },
    "CreateCatalog": {"name": "main"},
    "CreatePrincipal": {"name": "etl", "kind": "service"},
    "CreateSchema": {"path": ["sales"]},
    "CreateSecret": {"label": "nightly load"},
    "CreateTable": {"name": "orders", "format": "DELTA", "columns": [{"name": "id", "type": "long"}]},
    "CreateToken": {"principal": "etl", "expires_in_s": 86400},
    "RenameTable": {"to": ["main", "sales", "purchases"]},
    "TokenForm": {
        "grant_type": "client_credentials",
        "client_id": "etl",
        "client_secret": "inver_secret_...",
    },
    "TransactionRequest": {
        "operations": [
            {"op": "commit", "table": {"name": _ORDERS}, "version": 1, "token": "writer-7/1"},
            {"op": "move-cursor", "cursor": "orders-to-lance", "expect": None, "value": "1"},
        ]
    },
    "UndropTable": {"to": ["main", "sales", "orders"]},
}
