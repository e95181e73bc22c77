"""The schema of the catalog's own database: one ordered list of migrations for both dialects.

A released migration is never edited; a change is a new entry at the end.
"""

from __future__ import annotations

from inver.domain.principals import ADMIN, ADMINS, BUILT_IN
from inver.errors import Broken
from inver.stores.sql import Steps

_FIRST = (
    "CREATE TABLE meta (key {key} PRIMARY KEY, value TEXT NOT NULL)",
    # One row. Its lock is the last that a transaction takes and is held until the commit, so the
    # order of sequence numbers is the order of commits and a reader never sees a gap fill later.
    "CREATE TABLE event_head (id {int} PRIMARY KEY, seq {int} NOT NULL) {roomy}",
    "INSERT INTO event_head VALUES (1, 0)",
    """CREATE TABLE events (
        seq {int} PRIMARY KEY, txn {int} NOT NULL, at {int} NOT NULL, by_id {key} NOT NULL,
        kind {key} NOT NULL, subject {key} NOT NULL, version {int}, data {bytes} NOT NULL)""",
    # Grows with every change of what somebody may do. A decision names the number it was made under.
    "CREATE TABLE access_epoch (id {int} PRIMARY KEY, epoch {int} NOT NULL)",
    "INSERT INTO access_epoch VALUES (1, 1)",
    """CREATE TABLE principals (
        id {key} PRIMARY KEY, name TEXT NOT NULL, name_key {key} NOT NULL UNIQUE, kind {key} NOT NULL,
        disabled {int} NOT NULL, comment TEXT, etag {int} NOT NULL,
        created_at {int} NOT NULL, created_by {key} NOT NULL)""",
    """CREATE TABLE members (
        group_id {key} NOT NULL, member_id {key} NOT NULL, PRIMARY KEY (group_id, member_id))""",
    "CREATE INDEX members_member ON members (member_id)",
    """CREATE TABLE tokens (
        id {key} PRIMARY KEY, principal_id {key} NOT NULL, hash {key} NOT NULL, label TEXT NOT NULL,
        scope {key} NOT NULL, created_at {int} NOT NULL, created_by {key} NOT NULL,
        expires_at {int}, revoked_at {int}, last_used_at {int})""",
    "CREATE INDEX tokens_principal ON tokens (principal_id)",
    """CREATE TABLE secrets (
        id {key} PRIMARY KEY, principal_id {key} NOT NULL, hash {key} NOT NULL, label TEXT NOT NULL,
        created_at {int} NOT NULL, created_by {key} NOT NULL, expires_at {int}, revoked_at {int})""",
    "CREATE INDEX secrets_principal ON secrets (principal_id)",
    """CREATE TABLE grants (
        securable_id {key} NOT NULL, principal_id {key} NOT NULL, privilege {key} NOT NULL,
        kind {key} NOT NULL, granted_at {int} NOT NULL, granted_by {key} NOT NULL,
        PRIMARY KEY (securable_id, principal_id, privilege))""",
    "CREATE INDEX grants_principal ON grants (principal_id, securable_id, privilege)",
    """CREATE TABLE catalogs (
        id {key} PRIMARY KEY, name TEXT NOT NULL, name_key {key} NOT NULL UNIQUE, comment TEXT,
        properties {bytes} NOT NULL, storage_root TEXT, owner {key} NOT NULL, etag {int} NOT NULL,
        created_at {int} NOT NULL, created_by {key} NOT NULL,
        updated_at {int} NOT NULL, updated_by {key} NOT NULL)""",
    """CREATE TABLE schemas (
        id {key} PRIMARY KEY, catalog_id {key} NOT NULL, parent_id {key} NOT NULL,
        name TEXT NOT NULL, name_key {key} NOT NULL, path TEXT NOT NULL, path_key {key} NOT NULL,
        comment TEXT, properties {bytes} NOT NULL, storage_root TEXT, owner {key} NOT NULL,
        etag {int} NOT NULL, created_at {int} NOT NULL, created_by {key} NOT NULL,
        updated_at {int} NOT NULL, updated_by {key} NOT NULL)""",
    "CREATE UNIQUE INDEX schemas_path ON schemas (catalog_id, path_key)",
    "CREATE UNIQUE INDEX schemas_name ON schemas (parent_id, name_key)",
    """CREATE TABLE tables (
        id {key} PRIMARY KEY, catalog_id {key} NOT NULL, schema_id {key} NOT NULL,
        name TEXT NOT NULL, name_key {key} NOT NULL, format {key} NOT NULL, kind {key} NOT NULL,
        state {key} NOT NULL, location TEXT NOT NULL, location_key {key} NOT NULL,
        version {int} NOT NULL, etag {int} NOT NULL, head {bytes}, owner {key} NOT NULL,
        created_at {int} NOT NULL, created_by {key} NOT NULL,
        updated_at {int} NOT NULL, updated_by {key} NOT NULL, dropped_at {int},
        published {int} NOT NULL) {roomy}""",
    """CREATE UNIQUE INDEX tables_name ON tables (schema_id, name_key)
        WHERE state IN ('live', 'declared')""",
    "CREATE INDEX tables_location ON tables (location_key) WHERE state <> 'purged'",
    "CREATE INDEX tables_dropped ON tables (schema_id, dropped_at) WHERE state = 'dropped'",
    """CREATE TABLE details (
        table_id {key} PRIMARY KEY, comment TEXT, properties {bytes} NOT NULL, columns {bytes} NOT NULL)""",
    # Names of columns, kept apart from the definition so that they can be searched.
    """CREATE TABLE columns (
        table_id {key} NOT NULL, position {int} NOT NULL, name TEXT NOT NULL, name_key {key} NOT NULL,
        PRIMARY KEY (table_id, position))""",
    """CREATE TABLE branches (
        table_id {key} NOT NULL, name {key} NOT NULL, version {int} NOT NULL,
        PRIMARY KEY (table_id, name))""",
    # Rows in the order in which they come: kept by table they would dirty and split a page each.
    """CREATE TABLE commits (
        table_id {key} NOT NULL, branch {key} NOT NULL, version {int} NOT NULL, at {int} NOT NULL,
        by_id {key} NOT NULL, operation TEXT NOT NULL, token {key} NOT NULL, txn {int} NOT NULL,
        payload {bytes} NOT NULL, counts {bytes}, PRIMARY KEY (table_id, branch, version))""",
    # Versions as clients list them; rows go when clients clean up, the commits stay.
    """CREATE TABLE records (
        table_id {key} NOT NULL, branch {key} NOT NULL, version {int} NOT NULL, at {int} NOT NULL,
        key {key}, body {bytes} NOT NULL, data {bytes}, PRIMARY KEY (table_id, branch, version))""",
    "CREATE INDEX records_waiting ON records (table_id, branch, version) WHERE data IS NOT NULL",
    "CREATE UNIQUE INDEX records_key ON records (table_id, branch, key) WHERE key IS NOT NULL",
    """CREATE TABLE transaction_properties (
        txn {int} NOT NULL, key {key} NOT NULL, value TEXT NOT NULL, PRIMARY KEY (txn, key))""",
    """CREATE TABLE parts (
        table_id {key} NOT NULL, kind {key} NOT NULL, key {key} NOT NULL, position {int} NOT NULL,
        body {bytes} NOT NULL, PRIMARY KEY (table_id, kind, key)) {clustered}""",
    """CREATE TABLE reports (
        table_id {key} NOT NULL, version {int} NOT NULL, kind {key} NOT NULL, at {int} NOT NULL,
        by_id {key} NOT NULL, body {bytes} NOT NULL, PRIMARY KEY (table_id, version, kind))""",
    """CREATE TABLE cursors (
        name {key} PRIMARY KEY, value TEXT NOT NULL,
        updated_at {int} NOT NULL, updated_by {key} NOT NULL)""",
    """CREATE TABLE idempotency (
        scope {key} NOT NULL, key {key} NOT NULL, principal {key} NOT NULL, fingerprint {key} NOT NULL,
        txn {int}, at {int} NOT NULL, outcome {bytes} NOT NULL, PRIMARY KEY (scope, key))""",
    "CREATE INDEX idempotency_at ON idempotency (at)",
    """CREATE TABLE work (
        id {key} PRIMARY KEY, kind {key} NOT NULL, subject {key} NOT NULL, payload {bytes} NOT NULL,
        state {key} NOT NULL, not_before {int} NOT NULL, lease_until {int} NOT NULL, leased_by {key},
        attempts {int} NOT NULL, last_error TEXT, created_at {int} NOT NULL)""",
    "CREATE INDEX work_due ON work (not_before) WHERE state = 'waiting'",
    "CREATE INDEX tables_owner ON tables (owner, schema_id, name_key)",
    """CREATE TABLE shares (
        id {key} PRIMARY KEY, name TEXT NOT NULL, name_key {key} NOT NULL UNIQUE, comment TEXT,
        owner {key} NOT NULL, created_at {int} NOT NULL, created_by {key} NOT NULL)""",
    # A whole schema has an empty table key.
    """CREATE TABLE share_items (
        id {key} PRIMARY KEY, share_id {key} NOT NULL, kind {key} NOT NULL, securable_id {key} NOT NULL,
        schema_name TEXT NOT NULL, schema_key {key} NOT NULL, table_name TEXT, table_key {key} NOT NULL,
        start_version {int} NOT NULL, history {int} NOT NULL,
        added_at {int} NOT NULL, added_by {key} NOT NULL)""",
    "CREATE UNIQUE INDEX share_items_name ON share_items (share_id, schema_key, table_key)",
    """CREATE TABLE recipients (
        id {key} PRIMARY KEY, name TEXT NOT NULL, name_key {key} NOT NULL UNIQUE, kind {key} NOT NULL,
        comment TEXT, networks {bytes} NOT NULL, owner {key} NOT NULL,
        created_at {int} NOT NULL, created_by {key} NOT NULL, revoked_at {int})""",
    """CREATE TABLE recipient_credentials (
        id {key} PRIMARY KEY, recipient_id {key} NOT NULL, kind {key} NOT NULL, hash {key} NOT NULL,
        created_at {int} NOT NULL, created_by {key} NOT NULL, expires_at {int} NOT NULL,
        revoked_at {int}, last_used_at {int}, token_until {int})""",
    "CREATE INDEX recipient_credentials_of ON recipient_credentials (recipient_id)",
    """CREATE TABLE share_grants (
        share_id {key} NOT NULL, recipient_id {key} NOT NULL, filters {bytes} NOT NULL,
        granted_at {int} NOT NULL, granted_by {key} NOT NULL, PRIMARY KEY (share_id, recipient_id))""",
    "CREATE INDEX share_grants_recipient ON share_grants (recipient_id)",
    *(
        "INSERT INTO principals VALUES "
        f"('{who.id}', '{who.name}', '{who.name}', '{who.kind}', 0, NULL, 1, 0, '{who.id}')"
        for who in BUILT_IN
    ),
    f"INSERT INTO members VALUES ('{ADMINS.id}', '{ADMIN.id}')",
)

_CARE = (
    # Up to which event the health of tables is known; its lock is held by who goes on from there.
    "CREATE TABLE care_head (id {int} PRIMARY KEY, seq {int} NOT NULL)",
    "INSERT INTO care_head VALUES (1, 0)",
    # `reported` is the newest version of which a client's report was looked at.
    """CREATE TABLE health (
        table_id {key} PRIMARY KEY, version {int} NOT NULL, known {int} NOT NULL, reported {int} NOT NULL,
        body {bytes} NOT NULL) {roomy}""",
    "CREATE INDEX health_unknown ON health (table_id) WHERE known = 0",
    """CREATE TABLE scans (
        table_id {key} NOT NULL, hour {int} NOT NULL, count {int} NOT NULL,
        PRIMARY KEY (table_id, hour)) {clustered}""",
    "CREATE INDEX scans_hour ON scans (hour)",
    """CREATE TABLE care_runs (
        id {key} PRIMARY KEY, table_id {key} NOT NULL, job {key} NOT NULL, dry_run {int} NOT NULL,
        state {key} NOT NULL, attempt {int} NOT NULL, worker TEXT NOT NULL, by_id {key} NOT NULL,
        started_at {int} NOT NULL, lease_until {int} NOT NULL, progress {int} NOT NULL,
        message TEXT NOT NULL, options {bytes} NOT NULL, predicted {bytes} NOT NULL,
        pinned_from {int}, finished_at {int}, result {bytes})""",
    "CREATE UNIQUE INDEX care_runs_live ON care_runs (table_id) WHERE state = 'running'",
    "CREATE INDEX care_runs_table ON care_runs (table_id, id)",
    """CREATE TABLE care_policies (
        securable_id {key} PRIMARY KEY, kind {key} NOT NULL, body {bytes} NOT NULL,
        updated_at {int} NOT NULL, updated_by {key} NOT NULL)""",
    # Bytes a second that finished runs have read, by format and job.
    """CREATE TABLE care_rates (
        format {key} NOT NULL, job {key} NOT NULL, bytes_s {int} NOT NULL, PRIMARY KEY (format, job))""",
)

# Apart from the result: who lists runs does not read what may be a thousand paths of each.
_FILES_OF_RUNS = ("ALTER TABLE care_runs ADD COLUMN files {bytes}",)

_WAITING = (
    # What versions wait with until it is where readers look for it: apart from the records, which stay narrow
    # and are not written again when it goes.
    """CREATE TABLE waiting (
        table_id {key} NOT NULL, branch {key} NOT NULL, version {int} NOT NULL, data {bytes} NOT NULL,
        PRIMARY KEY (table_id, branch, version)) {clustered}""",
    "INSERT INTO waiting SELECT table_id, branch, version, data FROM records WHERE data IS NOT NULL",
    "DROP INDEX records_waiting",
    "ALTER TABLE records DROP COLUMN data",
)

_LISTING = (
    # All that a long list of names needs, beside each other. It does not change with a commit.
    """CREATE INDEX tables_listed ON tables (schema_id, name_key, name, format, kind, state)
        WHERE state IN ('live', 'declared')""",
    # What such a list leaves out: a column for it would be written with every commit.
    "CREATE INDEX tables_bare ON tables (schema_id, name_key) WHERE head IS NULL",
)

_CANCELLED = (
    # Scan plans of Iceberg that nobody wants any more, until their tokens end by themselves.
    "CREATE TABLE cancelled_plans (id {key} PRIMARY KEY, at {int} NOT NULL)",
    "CREATE INDEX cancelled_plans_at ON cancelled_plans (at)",
)

_PARTS_AS_THEY_COME = (
    # Kept by table, the large parts made every commit move its neighbours' to other pages. As they come they
    # share the pages of their batch, and what is kept by table is small enough to stay in memory.
    "{sqlite}ALTER TABLE parts RENAME TO parts_by_table",
    """{sqlite}CREATE TABLE parts (
        table_id {key} NOT NULL, kind {key} NOT NULL, key {key} NOT NULL, position {int} NOT NULL,
        body {bytes} NOT NULL, PRIMARY KEY (table_id, kind, key))""",
    "{sqlite}INSERT INTO parts SELECT * FROM parts_by_table ORDER BY table_id, kind, position",
    "{sqlite}DROP TABLE parts_by_table",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _FIRST,
    _CARE,
    _FILES_OF_RUNS,
    _WAITING,
    _LISTING,
    _CANCELLED,
    _PARTS_AS_THEY_COME,
)
LATEST = len(MIGRATIONS)

_READ = "SELECT value FROM meta WHERE key = 'schema_version'"


def require_known(version: int) -> None:
    if version > LATEST:
        raise Broken(
            f"the database has schema version {version}, this Inver knows {LATEST}",
            fix="start the Inver that migrated it, or a newer one; a newer schema is never opened",
        )


def read_version() -> Steps[int]:
    """Only after the caller has made sure that `meta` exists."""
    rows = yield _READ, ()
    return int(rows[0][0]) if rows else 0


def migrate(current: int) -> Steps[int]:
    """Apply what is missing, inside the transaction that the caller holds."""
    require_known(current)
    for statements in MIGRATIONS[current:]:
        for statement in statements:
            yield statement, ()
    if current < LATEST:
        yield (
            """INSERT INTO meta VALUES ('schema_version', ?1)
               ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
            (str(LATEST),),
        )
    return LATEST
