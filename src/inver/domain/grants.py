"""Who may do what: one decision over a securable and everything above it.

Privileges have Unity Catalog's names and inherit downwards: what is held on a catalog is held on
every schema and table in it. Whoever owns a securable may do everything with it and with what it
contains. Reaching into a catalog or schema takes USE CATALOG and USE SCHEMA besides. BROWSE shows
that something is there and nothing more.

`allowed` and `visible` decide; `explain` says why, by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from inver.domain.names import dotted
from inver.domain.securables import SecurableKind
from inver.errors import Invalid


class Privilege(StrEnum):
    ALL_PRIVILEGES = "ALL PRIVILEGES"
    MANAGE = "MANAGE"
    BROWSE = "BROWSE"
    USE_CATALOG = "USE CATALOG"
    USE_SCHEMA = "USE SCHEMA"
    SELECT = "SELECT"
    MODIFY = "MODIFY"
    MAINTAIN = "MAINTAIN"
    EXECUTE = "EXECUTE"
    READ_VOLUME = "READ VOLUME"
    WRITE_VOLUME = "WRITE VOLUME"
    CREATE_CATALOG = "CREATE CATALOG"
    CREATE_SCHEMA = "CREATE SCHEMA"
    CREATE_TABLE = "CREATE TABLE"
    CREATE_EXTERNAL_TABLE = "CREATE EXTERNAL TABLE"
    CREATE_FUNCTION = "CREATE FUNCTION"
    CREATE_VOLUME = "CREATE VOLUME"
    CREATE_EXTERNAL_VOLUME = "CREATE EXTERNAL VOLUME"
    CREATE_MODEL = "CREATE MODEL"
    CREATE_SHARE = "CREATE SHARE"
    CREATE_RECIPIENT = "CREATE RECIPIENT"
    CREATE_FLOW = "CREATE FLOW"
    CREATE_STORAGE_CREDENTIAL = "CREATE STORAGE CREDENTIAL"
    CREATE_EXTERNAL_LOCATION = "CREATE EXTERNAL LOCATION"
    CREATE_MANAGED_STORAGE = "CREATE MANAGED STORAGE"
    READ_FILES = "READ FILES"
    WRITE_FILES = "WRITE FILES"


P = Privilege
K = SecurableKind

_COMMON = frozenset({P.ALL_PRIVILEGES, P.MANAGE, P.BROWSE})
_TABLE = _COMMON | {P.SELECT, P.MODIFY, P.MAINTAIN}
_FUNCTION = _COMMON | {P.EXECUTE}
_VOLUME = _COMMON | {P.READ_VOLUME, P.WRITE_VOLUME}
_SCHEMA = (
    _TABLE
    | _FUNCTION
    | _VOLUME
    | {
        P.USE_SCHEMA,
        P.CREATE_SCHEMA,
        P.CREATE_TABLE,
        P.CREATE_EXTERNAL_TABLE,
        P.CREATE_FUNCTION,
        P.CREATE_VOLUME,
        P.CREATE_EXTERNAL_VOLUME,
        P.CREATE_MODEL,
    }
)
_CATALOG = _SCHEMA | {P.USE_CATALOG}
_METASTORE = frozenset(
    {
        P.MANAGE,
        P.BROWSE,
        P.USE_CATALOG,
        P.USE_SCHEMA,
        P.CREATE_CATALOG,
        P.CREATE_EXTERNAL_TABLE,
        P.CREATE_SHARE,
        P.CREATE_RECIPIENT,
        P.CREATE_FLOW,
        P.CREATE_STORAGE_CREDENTIAL,
        P.CREATE_EXTERNAL_LOCATION,
        P.CREATE_MANAGED_STORAGE,
        P.READ_FILES,
        P.WRITE_FILES,
        P.MAINTAIN,
    }
)

GRANTABLE: dict[SecurableKind, frozenset[Privilege]] = {
    K.METASTORE: _METASTORE,
    K.CATALOG: _CATALOG,
    K.SCHEMA: _SCHEMA,
    K.TABLE: _TABLE,
    K.VIEW: _COMMON | {P.SELECT},
    K.FUNCTION: _FUNCTION,
    K.VOLUME: _VOLUME,
}

# Managing is never part of ALL PRIVILEGES: it is the power to give them away.
_ALL = frozenset(Privilege) - {P.ALL_PRIVILEGES, P.MANAGE}

# What makes a securable visible to somebody who may use its parents.
_SHOWS: dict[SecurableKind, frozenset[Privilege]] = {
    K.METASTORE: frozenset(Privilege),
    K.CATALOG: _CATALOG - {P.ALL_PRIVILEGES},
    K.SCHEMA: _SCHEMA - {P.ALL_PRIVILEGES, P.CREATE_SCHEMA},
    K.TABLE: _TABLE - {P.ALL_PRIVILEGES},
    K.VIEW: frozenset({P.MANAGE, P.BROWSE, P.SELECT}),
    K.FUNCTION: _FUNCTION - {P.ALL_PRIVILEGES},
    K.VOLUME: _VOLUME - {P.ALL_PRIVILEGES},
}

_USE = {K.CATALOG: P.USE_CATALOG, K.SCHEMA: P.USE_SCHEMA}


class Action(StrEnum):
    """Everything that can be asked of a securable. A commit needs MODIFY, and so on: see `RULES`."""

    SEE = "see"
    CREATE_CATALOG = "create-catalog"
    CREATE_SCHEMA = "create-schema"
    CREATE_TABLE = "create-table"
    CREATE_EXTERNAL_TABLE = "create-external-table"
    CREATE_MANAGED_STORAGE = "create-managed-storage"
    READ_FILES = "read-files"
    WRITE_FILES = "write-files"
    LOAD = "load"
    READ = "read"
    COMMIT = "commit"
    ALTER = "alter"
    ALTER_TABLE = "alter-table"
    RENAME = "rename"
    DROP = "drop"
    TRANSFER = "transfer"
    MAINTAIN = "maintain"
    READ_GRANTS = "read-grants"
    CHANGE_GRANTS = "change-grants"
    READ_PRINCIPALS = "read-principals"
    MANAGE_PRINCIPALS = "manage-principals"
    READ_EVENTS = "read-events"
    READ_CURSOR = "read-cursor"
    MOVE_CURSOR = "move-cursor"
    DIAGNOSE = "diagnose"
    CREATE_SHARE = "create-share"
    CREATE_RECIPIENT = "create-recipient"
    READ_SHARES = "read-shares"
    MANAGE_SHARES = "manage-shares"


class Rule(msgspec.Struct, frozen=True):
    """Any of `needs` on the target. `inside` actions make something in the target and so must use it."""

    needs: frozenset[Privilege]
    changes: bool = True
    inside: bool = False


RULES: dict[Action, Rule] = {
    Action.CREATE_CATALOG: Rule(frozenset({P.CREATE_CATALOG})),
    Action.CREATE_SCHEMA: Rule(frozenset({P.CREATE_SCHEMA}), inside=True),
    Action.CREATE_TABLE: Rule(frozenset({P.CREATE_TABLE}), inside=True),
    Action.CREATE_EXTERNAL_TABLE: Rule(frozenset({P.CREATE_EXTERNAL_TABLE}), inside=True),
    Action.CREATE_MANAGED_STORAGE: Rule(frozenset({P.CREATE_MANAGED_STORAGE})),
    Action.READ_FILES: Rule(frozenset({P.READ_FILES}), changes=False),
    Action.WRITE_FILES: Rule(frozenset({P.WRITE_FILES})),
    Action.LOAD: Rule(frozenset({P.SELECT, P.MODIFY, P.MAINTAIN}), changes=False),
    Action.READ: Rule(frozenset({P.SELECT}), changes=False),
    Action.COMMIT: Rule(frozenset({P.MODIFY})),
    Action.ALTER: Rule(frozenset({P.MANAGE})),
    Action.ALTER_TABLE: Rule(frozenset({P.MODIFY, P.MANAGE})),
    Action.RENAME: Rule(frozenset({P.MANAGE})),
    Action.DROP: Rule(frozenset({P.MANAGE})),
    Action.TRANSFER: Rule(frozenset({P.MANAGE})),
    Action.MAINTAIN: Rule(frozenset({P.MAINTAIN})),
    Action.READ_GRANTS: Rule(frozenset({P.MANAGE}), changes=False),
    Action.CHANGE_GRANTS: Rule(frozenset({P.MANAGE})),
    Action.READ_PRINCIPALS: Rule(frozenset({P.MANAGE}), changes=False),
    Action.MANAGE_PRINCIPALS: Rule(frozenset({P.MANAGE})),
    Action.READ_EVENTS: Rule(frozenset({P.MANAGE}), changes=False),
    Action.READ_CURSOR: Rule(frozenset({P.CREATE_FLOW}), changes=False),
    Action.MOVE_CURSOR: Rule(frozenset({P.CREATE_FLOW})),
    Action.DIAGNOSE: Rule(frozenset({P.MANAGE}), changes=False),
    Action.CREATE_SHARE: Rule(frozenset({P.CREATE_SHARE})),
    Action.CREATE_RECIPIENT: Rule(frozenset({P.CREATE_RECIPIENT})),
    Action.READ_SHARES: Rule(frozenset({P.MANAGE}), changes=False),
    Action.MANAGE_SHARES: Rule(frozenset({P.MANAGE})),
}


class Node(msgspec.Struct, frozen=True):
    """One securable of a chain that leads from the target up to the metastore."""

    kind: SecurableKind
    id: str
    owner: str
    name: tuple[str, ...]

    def shown(self) -> str:
        return f"{self.kind} {dotted(self.name)}" if self.name else str(self.kind)


Chain = Sequence[Node]
"""Target first, metastore last."""


class Standing(msgspec.Struct, frozen=True):
    """What a principal brings to a decision.

    `subjects` are the principal and every group it is in; `grants` holds, per securable id, each
    privilege that one of them was given there, with the id of the one who has it.
    """

    subjects: frozenset[str]
    grants: Mapping[str, Mapping[Privilege, str]]
    read_only: bool = False


class Decision(msgspec.Struct, frozen=True):
    allowed: bool
    visible: bool
    because: tuple[str, ...]
    missing: tuple[str, ...]


class _Walk:
    """The chain walked from the top, with what is held and what use is missing on the way."""

    __slots__ = ("held", "owned", "usable")

    def __init__(self, standing: Standing, chain: Chain, inside: bool) -> None:
        subjects, grants = standing.subjects, standing.grants
        held: set[Privilege] = set()
        owned = False
        usable = True
        for depth in range(len(chain) - 1, -1, -1):
            node = chain[depth]
            if node.owner in subjects:
                owned = True
            given = grants.get(node.id)
            if given is not None:
                held.update(_ALL if P.ALL_PRIVILEGES in given else ())
                held.update(given)
            if not owned and usable and (depth or inside):
                use = _USE.get(node.kind)
                usable = use is None or use in held
        self.held = held
        self.owned = owned
        self.usable = usable


def allowed(standing: Standing, action: Action, chain: Chain) -> bool:
    if action is Action.SEE:
        return visible(standing, chain)
    rule = RULES[action]
    if standing.read_only and rule.changes:
        return False
    if chain[-1].owner in standing.subjects:
        # Who owns the top owns everything below it, and needs no leave to use it.
        return True
    walk = _Walk(standing, chain, rule.inside)
    return walk.usable and (walk.owned or not rule.needs.isdisjoint(walk.held))


def visible(standing: Standing, chain: Chain) -> bool:
    kind = chain[0].kind
    if kind is K.METASTORE:
        return True
    walk = _Walk(standing, chain, inside=False)
    if P.BROWSE in walk.held:
        return True
    return walk.usable and (walk.owned or not _SHOWS[kind].isdisjoint(walk.held))


def shows_all_inside(standing: Standing, chain: Chain, child: SecurableKind) -> bool:
    """Whether every `child` directly in the target is visible, so that a listing needs no look at each."""
    walk = _Walk(standing, chain, inside=True)
    if P.BROWSE in walk.held:
        return True
    return walk.usable and (walk.owned or not _SHOWS[child].isdisjoint(walk.held))


def explain(
    standing: Standing, action: Action, chain: Chain, names: Mapping[str, str] | None = None
) -> Decision:
    """The decision with its reasons; `names` shows subjects by name instead of id.

    Whoever is given everything that is `missing` is allowed.
    """
    told = _why_seen if action is Action.SEE else _why_allowed
    because, missing = told(standing, action, chain, names or {})
    return Decision(not missing, visible(standing, chain), tuple(because), tuple(missing))


def _why_allowed(
    standing: Standing, action: Action, chain: Chain, names: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    rule = RULES[action]
    reasons = _Reasons(standing, rule, chain, names)
    if standing.read_only and rule.changes:
        return reasons.because, ["a token whose scope is not read-only", *reasons.missing]
    return reasons.because, reasons.missing


def _why_seen(
    standing: Standing, action: Action, chain: Chain, names: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    target = chain[0]
    if target.kind is K.METASTORE:
        return ["everybody sees the metastore"], []
    reasons = _Reasons(standing, Rule(_SHOWS[target.kind], changes=False), chain, names)
    if not reasons.missing:
        return reasons.because, []
    if P.BROWSE in reasons.held:
        return [reasons.held[P.BROWSE]], []
    # Seeing takes less than using: BROWSE needs no way through what is above.
    return reasons.because, [f"{P.BROWSE} on {target.shown()}"]


class _Reasons:
    """The walk of a decision once more, with the words for what was found and what was not."""

    def __init__(self, standing: Standing, rule: Rule, chain: Chain, names: Mapping[str, str]) -> None:
        self.held: dict[Privilege, str] = {}
        because: list[str] = []
        wanted: dict[Privilege, str] = {}
        owner: str | None = None
        for depth in range(len(chain) - 1, -1, -1):
            node = chain[depth]
            shown = node.shown()
            if owner is None and node.owner in standing.subjects:
                owner = f"{names.get(node.owner, node.owner)} owns {shown}"
            for privilege, subject in standing.grants.get(node.id, {}).items():
                text = f"{privilege} on {shown}, granted to {names.get(subject, subject)}"
                for each in _ALL if privilege is P.ALL_PRIVILEGES else (privilege,):
                    self.held.setdefault(each, text)
            use = _USE.get(node.kind) if depth or rule.inside else None
            if use is None or owner is not None:
                continue
            if use in self.held:
                because.append(self.held[use])
            else:
                # Given here, it is held on everything below as well.
                wanted.setdefault(use, f"{use} on {shown}")
        needed = [each for each in Privilege if each in rule.needs]
        enough = owner or next((self.held[each] for each in needed if each in self.held), None)
        self.missing = list(wanted.values())
        if enough is not None:
            because.append(enough)
        else:
            self.missing.append(f"{' or '.join(needed)} on {chain[0].shown()}")
        self.because = list(dict.fromkeys(because))


def parse_privilege(text: str, kind: SecurableKind, field: str = "privileges") -> Privilege:
    """`USE CATALOG`, also spelled use_catalog; only what means something on this kind of securable."""
    wanted = text.strip().upper().replace("_", " ")
    try:
        privilege = Privilege(wanted)
    except ValueError:
        raise Invalid(
            f"{text!r} is not a privilege", field=field, fix="one of " + ", ".join(sorted(GRANTABLE[kind]))
        ) from None
    if privilege not in GRANTABLE[kind]:
        raise Invalid(
            f"{privilege} cannot be granted on a {kind}",
            field=field,
            fix="one of " + ", ".join(sorted(GRANTABLE[kind])),
        )
    return privilege


def parse_action(text: str, field: str = "action") -> Action:
    try:
        return Action(text.strip().lower().replace("_", "-").replace(" ", "-"))
    except ValueError:
        raise Invalid(f"{text!r} is not an action", field=field, fix="one of " + ", ".join(Action)) from None
