from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest

from inver.domain.principals import ADMIN, SYSTEM
from inver.domain.securables import METASTORE_ID, SecurableKind, may_contain

IN_SCHEMAS = {SecurableKind.TABLE, SecurableKind.VIEW, SecurableKind.FUNCTION, SecurableKind.VOLUME}
CONTAINS = {
    SecurableKind.METASTORE: {SecurableKind.CATALOG},
    SecurableKind.CATALOG: {SecurableKind.SCHEMA},
    SecurableKind.SCHEMA: {SecurableKind.SCHEMA, *IN_SCHEMAS},
}


@pytest.mark.parametrize(("parent", "child"), list(product(SecurableKind, SecurableKind)))
def test_every_pair_of_kinds_is_decided(parent: SecurableKind, child: SecurableKind):
    assert may_contain(parent, child) == (child in CONTAINS.get(parent, set()))


@pytest.mark.parametrize("kind", SecurableKind)
def test_everything_hangs_below_the_metastore(kind: SecurableKind):
    above = {kind}
    while True:
        more = above | {parent for parent in SecurableKind for child in above if may_contain(parent, child)}
        if more == above:
            break
        above = more
    assert SecurableKind.METASTORE in above
    assert not any(may_contain(parent, SecurableKind.METASTORE) for parent in SecurableKind)


def test_the_ids_that_every_database_knows_differ():
    known = [METASTORE_ID, SYSTEM.id, ADMIN.id]
    assert len({UUID(value) for value in known}) == len(known)
    assert all(str(UUID(value)) == value for value in known)
