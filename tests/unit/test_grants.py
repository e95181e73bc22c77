"""Every decision that can be made, against rules written down a second time and in the plainest way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.grants import (
    GRANTABLE,
    RULES,
    Action,
    Chain,
    Decision,
    Node,
    Privilege,
    Standing,
    allowed,
    explain,
    parse_action,
    parse_privilege,
    shows_all_inside,
    visible,
)
from inver.domain.securables import SecurableKind
from inver.errors import Invalid
from tests.fixtures.rules import NEEDS, ONLY_READS, USE, reference_allowed, reference_visible

A, K, P = Action, SecurableKind, Privilege

ME, MY_GROUP, EVERYONE, OTHER = "me", "analysts", "everyone", "somebody else"
SUBJECTS = frozenset({ME, MY_GROUP, EVERYONE})


# --- chains: every shape in which a securable can stand ---


def chain_of(*kinds: SecurableKind, owned_at: int | None = None) -> tuple[Node, ...]:
    """From the target up to the metastore; `owned_at` is the level that ME owns."""
    names = {
        K.METASTORE: (),
        K.CATALOG: ("main",),
        K.SCHEMA: ("main", "sales"),
    }
    nodes = []
    for level, kind in enumerate(kinds):
        name = names.get(kind, ("main", "sales", "orders"))
        if kind is K.SCHEMA and K.SCHEMA in kinds[level + 1 :]:
            name = ("main", "sales", "deep")
        owner = ME if level == owned_at else OTHER
        nodes.append(Node(kind, f"{kind}-{level}", owner, name))
    return tuple(nodes)


ABOVE = (K.SCHEMA, K.CATALOG, K.METASTORE)
DEEP = (K.SCHEMA, *ABOVE)
SHAPES: dict[str, tuple[SecurableKind, ...]] = {
    "metastore": (K.METASTORE,),
    "catalog": (K.CATALOG, K.METASTORE),
    "schema": ABOVE,
    "nested schema": DEEP,
    "table": (K.TABLE, *ABOVE),
    "table in a nested schema": (K.TABLE, *DEEP),
    "view": (K.VIEW, *ABOVE),
    "function": (K.FUNCTION, *ABOVE),
    "volume": (K.VOLUME, *ABOVE),
}


def test_every_action_has_its_rule():
    assert set(RULES) == set(NEEDS) == set(Action) - {A.SEE}


# --- every action x privilege x level of the grant x kind of target x level of ownership x use rights ---


def uses(chain: Chain) -> Iterator[dict[str, Privilege]]:
    """Ways through: every USE at its own level, none of them, and all but one of them."""
    levels = {node.id: USE[node.kind] for node in chain if node.kind in USE}
    yield levels
    for missing in levels:
        yield {node: use for node, use in levels.items() if node != missing}
    if len(levels) != 1:
        yield {}


def granted(use: Mapping[str, Privilege], node: str, privilege: Privilege) -> dict[str, dict[Privilege, str]]:
    grants: dict[str, dict[Privilege, str]] = {each: {one: ME} for each, one in use.items()}
    grants.setdefault(node, {})[privilege] = MY_GROUP
    return grants


@pytest.mark.parametrize("shape", SHAPES)
def test_every_decision_is_the_documented_one(shape: str):
    kinds = SHAPES[shape]
    decided = 0
    for owned_at in (None, *range(len(kinds))):
        chain = chain_of(*kinds, owned_at=owned_at)
        for use, node, privilege in itertools.product(uses(chain), chain, Privilege):
            standing = Standing(SUBJECTS, granted(use, node.id, privilege))
            sees = reference_visible(standing, chain)
            assert visible(standing, chain) is sees, (owned_at, use, node, privilege)
            for action in Action:
                expected = sees if action is A.SEE else reference_allowed(standing, action, chain)
                assert allowed(standing, action, chain) is expected, (action, owned_at, use, node, privilege)
                decided += expected
    assert decided > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_a_read_only_credential_changes_nothing_whatever_its_principal_may(shape: str):
    kinds = SHAPES[shape]
    every = dict.fromkeys(Privilege, ME)
    for owned_at in (None, *range(len(kinds))):
        chain = chain_of(*kinds, owned_at=owned_at)
        full = Standing(SUBJECTS, {node.id: every for node in chain})
        reading = Standing(SUBJECTS, full.grants, read_only=True)
        for action in Action:
            assert allowed(full, action, chain)
            assert allowed(reading, action, chain) is (action in ONLY_READS), action
            assert visible(reading, chain)


@pytest.mark.parametrize("shape", SHAPES)
def test_who_holds_nothing_and_owns_nothing_may_do_nothing(shape: str):
    chain = chain_of(*SHAPES[shape])
    for action in Action:
        expected = action is A.SEE and shape == "metastore"
        assert allowed(Standing(SUBJECTS, {}), action, chain) is expected


# --- the rows that matter most, in words ---

TABLE = SHAPES["table"]
NESTED = SHAPES["table in a nested schema"]
Grants = dict[str, dict[Privilege, str]]


def on(**held: set[Privilege]) -> Grants:
    """Granted to ME on the metastore, the catalog, the schema or the table of a table's chain."""
    ids = {"table": "table-0", "schema": "schema-1", "catalog": "catalog-2", "metastore": "metastore-3"}
    return {ids[level]: dict.fromkeys(privileges, ME) for level, privileges in held.items()}


def way(*more: Privilege) -> set[Privilege]:
    return {P.USE_CATALOG, P.USE_SCHEMA, *more}


OWNS_TABLE, OWNS_SCHEMA, OWNS_CATALOG, OWNS_METASTORE = range(4)

MAY: list[tuple[str, Action, Grants, int | None]] = [
    (
        "SELECT with both USE",
        A.READ,
        on(table={P.SELECT}, schema={P.USE_SCHEMA}, catalog={P.USE_CATALOG}),
        None,
    ),
    ("all three from the catalog", A.READ, on(catalog=way(P.SELECT)), None),
    ("both USE from the metastore", A.READ, on(metastore=way(), table={P.SELECT}), None),
    ("MODIFY commits", A.COMMIT, on(catalog=way(P.MODIFY)), None),
    ("MODIFY loads", A.LOAD, on(catalog=way(P.MODIFY)), None),
    ("MAINTAIN loads", A.LOAD, on(catalog=way(P.MAINTAIN)), None),
    ("MAINTAIN maintains", A.MAINTAIN, on(metastore=way(P.MAINTAIN)), None),
    ("MODIFY changes the definition", A.ALTER_TABLE, on(catalog=way(P.MODIFY)), None),
    ("BROWSE sees without any USE", A.SEE, on(table={P.BROWSE}), None),
    ("BROWSE on the metastore sees", A.SEE, on(metastore={P.BROWSE}), None),
    ("ALL PRIVILEGES on the catalog reads", A.READ, on(catalog={P.ALL_PRIVILEGES}), None),
    ("ALL PRIVILEGES on the catalog commits", A.COMMIT, on(catalog={P.ALL_PRIVILEGES}), None),
    ("MANAGE drops", A.DROP, on(catalog=way(), table={P.MANAGE}), None),
    ("MANAGE renames", A.RENAME, on(catalog=way(), schema={P.MANAGE}), None),
    ("MANAGE gives away", A.CHANGE_GRANTS, on(catalog=way(), table={P.MANAGE}), None),
    ("who owns the metastore drops", A.DROP, {}, OWNS_METASTORE),
    ("who owns the catalog commits", A.COMMIT, {}, OWNS_CATALOG),
    ("who owns the schema and uses the catalog commits", A.COMMIT, on(catalog={P.USE_CATALOG}), OWNS_SCHEMA),
    ("who owns the table and reaches it commits", A.COMMIT, on(catalog=way()), OWNS_TABLE),
]
MAY_NOT: list[tuple[str, Action, Grants, int | None]] = [
    ("SELECT alone", A.READ, on(table={P.SELECT}), None),
    ("without USE CATALOG", A.READ, on(table={P.SELECT}, schema={P.USE_SCHEMA}), None),
    ("without USE SCHEMA", A.READ, on(table={P.SELECT}, catalog={P.USE_CATALOG}), None),
    ("USE CATALOG on a schema", A.READ, on(schema=way(P.SELECT)), None),
    ("both USE without SELECT", A.READ, on(catalog=way()), None),
    ("SELECT does not commit", A.COMMIT, on(catalog=way(P.SELECT)), None),
    ("SELECT does not change the definition", A.ALTER_TABLE, on(catalog=way(P.SELECT)), None),
    ("MODIFY does not read data", A.READ, on(catalog=way(P.MODIFY)), None),
    ("MAINTAIN does not commit", A.COMMIT, on(catalog=way(P.MAINTAIN)), None),
    ("BROWSE does not load", A.LOAD, on(catalog=way(P.BROWSE)), None),
    ("BROWSE does not read", A.READ, on(catalog=way(P.BROWSE)), None),
    ("ALL PRIVILEGES on the table without the way", A.READ, on(table={P.ALL_PRIVILEGES}), None),
    ("ALL PRIVILEGES does not drop", A.DROP, on(catalog={P.ALL_PRIVILEGES}), None),
    ("ALL PRIVILEGES does not rename", A.RENAME, on(catalog={P.ALL_PRIVILEGES}), None),
    ("ALL PRIVILEGES does not transfer", A.TRANSFER, on(catalog={P.ALL_PRIVILEGES}), None),
    ("ALL PRIVILEGES gives nothing away", A.CHANGE_GRANTS, on(catalog={P.ALL_PRIVILEGES}), None),
    ("MANAGE does not read data", A.READ, on(catalog=way(P.MANAGE)), None),
    ("MANAGE does not commit", A.COMMIT, on(catalog=way(P.MANAGE)), None),
    ("MANAGE without the way", A.DROP, on(table={P.MANAGE}), None),
    ("who owns the schema without USE CATALOG", A.COMMIT, {}, OWNS_SCHEMA),
    ("who owns the table without any USE", A.COMMIT, {}, OWNS_TABLE),
    ("who owns the table without USE SCHEMA", A.COMMIT, on(catalog={P.USE_CATALOG}), OWNS_TABLE),
    ("who owns the table without any USE does not see it", A.SEE, {}, OWNS_TABLE),
]


@pytest.mark.parametrize(
    ("action", "grants", "owned_at", "expected"),
    [
        *(pytest.param(*row[1:], True, id=row[0]) for row in MAY),
        *(pytest.param(*row[1:], False, id=row[0]) for row in MAY_NOT),
    ],
)
def test_on_a_table(action: Action, grants: Grants, owned_at: int | None, expected: bool):
    chain = chain_of(*TABLE, owned_at=owned_at)
    assert allowed(Standing(SUBJECTS, grants), action, chain) is expected
    assert explain(Standing(SUBJECTS, grants), action, chain).allowed is expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({P.CREATE_TABLE, P.USE_SCHEMA, P.USE_CATALOG}, True),
        ({P.CREATE_TABLE, P.USE_CATALOG}, False),
        ({P.CREATE_TABLE, P.USE_SCHEMA}, False),
        ({P.USE_SCHEMA, P.USE_CATALOG}, False),
        ({P.ALL_PRIVILEGES}, True),
    ],
)
def test_who_makes_a_table_must_use_the_very_schema(held: set[Privilege], expected: bool):
    standing = Standing(SUBJECTS, {"catalog-1": dict.fromkeys(held, ME)})
    assert allowed(standing, A.CREATE_TABLE, chain_of(*ABOVE)) is expected


deep_table, deep, outer, deep_catalog = "table-0", "schema-1", "schema-2", "catalog-3"


@pytest.mark.parametrize(
    ("with_use_on", "expected"),
    [
        ({deep, outer}, True),
        ({deep}, False),
        ({outer}, True),
        (set(), False),
        ({deep_catalog}, True),
    ],
)
def test_every_schema_on_the_way_must_be_usable(with_use_on: set[str], expected: bool):
    """What is held on the outer schema is held on the inner one, and not the other way round."""
    grants = {deep_catalog: {P.USE_CATALOG: ME}, deep_table: {P.SELECT: ME}}
    for node in with_use_on:
        grants.setdefault(node, {})[P.USE_SCHEMA] = ME
    assert allowed(Standing(SUBJECTS, grants), A.READ, chain_of(*NESTED)) is expected


def test_the_owner_of_an_outer_schema_needs_no_use_of_the_inner_one():
    standing = Standing(SUBJECTS, {deep_catalog: {P.USE_CATALOG: ME}})
    assert allowed(standing, A.COMMIT, chain_of(*NESTED, owned_at=2))
    assert not allowed(standing, A.COMMIT, chain_of(*NESTED, owned_at=1))


@pytest.mark.parametrize("subject", [ME, MY_GROUP, EVERYONE])
def test_a_grant_to_any_of_ones_groups_is_as_good_as_ones_own(subject: str):
    grants = {"catalog-2": dict.fromkeys(way(P.SELECT), subject)}
    assert allowed(Standing(SUBJECTS, grants), A.READ, chain_of(*TABLE))
    owned = tuple(
        Node(node.kind, node.id, subject, node.name) if node.kind is K.CATALOG else node
        for node in chain_of(*TABLE)
    )
    assert allowed(Standing(SUBJECTS, {}), A.DROP, owned)
    assert not allowed(Standing(frozenset({"stranger"}), {}), A.DROP, owned)


# --- explanations ---

NAMES = {ME: "ada", MY_GROUP: "analysts", EVERYONE: "everyone"}

privileges = st.sampled_from(list(Privilege))
subjects = st.sampled_from([ME, MY_GROUP, EVERYONE])


@st.composite
def situations(draw: st.DrawFn) -> tuple[Standing, tuple[Node, ...]]:
    kinds = draw(st.sampled_from(list(SHAPES.values())))
    owned_at = draw(st.none() | st.integers(0, len(kinds) - 1))
    chain = chain_of(*kinds, owned_at=owned_at)
    ids = [*(node.id for node in chain), "somewhere else"]
    grants = draw(
        st.dictionaries(st.sampled_from(ids), st.dictionaries(privileges, subjects, max_size=3), max_size=4)
    )
    if draw(st.booleans()):
        for node in chain:
            if node.kind in USE and draw(st.integers(0, 4)):
                grants.setdefault(node.id, {})[USE[node.kind]] = draw(subjects)
    return Standing(SUBJECTS, grants, draw(st.booleans())), chain


@given(situations(), st.sampled_from(list(Action)))
def test_the_explanation_is_the_decision(situation: tuple[Standing, tuple[Node, ...]], action: Action):
    standing, chain = situation
    decision = explain(standing, action, chain, NAMES)
    assert decision.allowed is allowed(standing, action, chain)
    assert decision.allowed is reference_allowed(standing, action, chain)
    assert decision.visible is visible(standing, chain) is reference_visible(standing, chain)
    assert decision.allowed is not bool(decision.missing)
    assert decision.because or not decision.allowed
    assert all(true_of(standing, chain, text) for text in decision.because), decision.because


@given(situations(), st.sampled_from(list(Action)), st.data())
def test_what_is_missing_is_what_would_be_enough(
    situation: tuple[Standing, tuple[Node, ...]], action: Action, data: st.DataObject
):
    standing, chain = situation
    decision = explain(standing, action, chain)
    if decision.allowed:
        return
    wishes = [wish for text in decision.missing for wish in wished(text, data)]
    enough = given_also(standing, chain, wishes)
    assert allowed(enough, action, chain), decision.missing
    # And nothing of it is idle: without any one of these the answer is still no.
    for left_out in range(len(wishes)):
        less = given_also(standing, chain, wishes[:left_out] + wishes[left_out + 1 :])
        assert not allowed(less, action, chain), wishes[left_out]


READ_ONLY = "a token whose scope is not read-only"


def wished(text: str, data: st.DataObject) -> list[tuple[Privilege | None, str]]:
    """One thing to give: a privilege of those named and where, or None for a better token."""
    if text == READ_ONLY:
        return [(None, "")]
    names, _, place = text.partition(" on ")
    return [(P(data.draw(st.sampled_from(names.split(" or ")))), place)]


def given_also(standing: Standing, chain: Chain, wishes: list[tuple[Privilege | None, str]]) -> Standing:
    grants = {node: dict(held) for node, held in standing.grants.items()}
    read_only = standing.read_only
    for privilege, place in wishes:
        if privilege is None:
            read_only = False
        else:
            node = next(node for node in chain if node.shown() == place)
            grants.setdefault(node.id, {})[privilege] = ME
    return Standing(standing.subjects, grants, read_only)


def true_of(standing: Standing, chain: Chain, text: str) -> bool:
    """Whether a reason names a grant or an ownership that there is."""
    facts = {"everybody sees the metastore"}
    for node in chain:
        facts.add(f"{NAMES.get(node.owner, node.owner)} owns {node.shown()}")
        for privilege, subject in standing.grants.get(node.id, {}).items():
            facts.add(f"{privilege} on {node.shown()}, granted to {NAMES[subject]}")
    return text in facts


def test_an_explanation_reads_well():
    grants = {
        "catalog-2": {P.USE_CATALOG: EVERYONE},
        "schema-1": {P.ALL_PRIVILEGES: MY_GROUP},
        "elsewhere": {P.MODIFY: ME},
    }
    standing = Standing(SUBJECTS, grants)
    assert explain(standing, A.READ, chain_of(*TABLE), NAMES) == Decision(
        allowed=True,
        visible=True,
        because=(
            "USE CATALOG on catalog main, granted to everyone",
            "ALL PRIVILEGES on schema main.sales, granted to analysts",
        ),
        missing=(),
    )
    assert explain(standing, A.DROP, chain_of(*TABLE), NAMES).missing == (
        "MANAGE on table main.sales.orders",
    )
    assert explain(Standing(SUBJECTS, {}), A.LOAD, chain_of(*TABLE)).missing == (
        "USE CATALOG on catalog main",
        "USE SCHEMA on schema main.sales",
        "SELECT or MODIFY or MAINTAIN on table main.sales.orders",
    )
    assert explain(Standing(SUBJECTS, {}), A.SEE, chain_of(*TABLE)).missing == (
        "BROWSE on table main.sales.orders",
    )
    assert explain(Standing(SUBJECTS, {}, read_only=True), A.COMMIT, chain_of(*TABLE, owned_at=2), NAMES) == (
        Decision(False, True, ("ada owns catalog main",), (READ_ONLY,))
    )
    assert explain(Standing(SUBJECTS, {}), A.SEE, chain_of(K.METASTORE)).because == (
        "everybody sees the metastore",
    )


# --- listings ---


@given(situations(), st.sampled_from([K.SCHEMA, K.TABLE, K.VIEW, K.FUNCTION, K.VOLUME]), st.booleans())
def test_a_listing_that_looks_at_nothing_shows_nothing_hidden(
    situation: tuple[Standing, tuple[Node, ...]], kind: SecurableKind, owned: bool
):
    """Where all is said to be visible inside, anything inside is; where not, something can be hidden."""
    standing, chain = situation
    if chain[0].kind not in (K.CATALOG, K.SCHEMA) or (chain[0].kind is K.CATALOG and kind is not K.SCHEMA):
        return
    child = Node(kind, "child", OTHER, (*chain[0].name, "child"))
    assert shows_all_inside(standing, chain, kind) is visible(standing, (child, *chain))
    mine = Node(kind, "mine", ME, (*chain[0].name, "mine"))
    if shows_all_inside(standing, chain, kind):
        assert visible(standing, (mine, *chain))


# --- what is granted where, and its spelling ---


def test_what_can_be_granted_inherits_from_above():
    """A privilege of a kind can be granted on everything that contains the kind, up to the catalog."""
    assert GRANTABLE[K.TABLE] <= GRANTABLE[K.SCHEMA] <= GRANTABLE[K.CATALOG]
    for kind in (K.VIEW, K.FUNCTION, K.VOLUME):
        assert GRANTABLE[kind] <= GRANTABLE[K.SCHEMA]
    assert set(GRANTABLE) == set(SecurableKind)
    assert P.ALL_PRIVILEGES not in GRANTABLE[K.METASTORE], "the whole metastore belongs to admins"
    assert set().union(*GRANTABLE.values()) == set(Privilege), "a privilege that nobody can be given"


@pytest.mark.parametrize("spelling", ["USE CATALOG", "use_catalog", " Use Catalog ", "USE_CATALOG"])
def test_privileges_are_read_in_any_spelling(spelling: str):
    assert parse_privilege(spelling, K.CATALOG) is P.USE_CATALOG


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT", K.METASTORE),
        ("USE CATALOG", K.TABLE),
        ("CREATE TABLE", K.TABLE),
        ("OWNERSHIP", K.TABLE),
        ("", K.TABLE),
    ],
)
def test_what_means_nothing_somewhere_cannot_be_granted_there(text: str, kind: SecurableKind):
    with pytest.raises(Invalid) as refused:
        parse_privilege(text, kind)
    assert refused.value.field == "privileges"
    assert refused.value.fix is not None
    assert "MANAGE" in refused.value.fix


def test_actions_are_read_in_any_spelling():
    for action in Action:
        assert parse_action(action.upper().replace("-", "_")) is action
        assert parse_action(f" {action.replace('-', ' ')} ") is action
    with pytest.raises(Invalid, match="fly"):
        parse_action("fly")
