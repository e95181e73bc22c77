"""Iceberg's own compatibility kit for REST catalogs, run by Iceberg's Java client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.iceberg_clients import make_catalog
from tests.fixtures.iceberg_java import MORE, Verdicts, run_kit
from tests.fixtures.jvm import JvmMissing
from tests.fixtures.server import BACKENDS, new_database, running_inver

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(400)]

TABLES = "RESTCompatibilityKitCatalogTests"
VIEWS = "RESTCompatibilityKitViewCatalogTests"
MOST = 157
"""How many tests the kit has."""

# It moves the metadata file away and wants a load to fail. The catalog itself is what knows the
# metadata, and the file is a copy of it.
FAILED = {f"{TABLES}.testLoadTableWithMissingMetadataFile(Path)"}

# The kit leaves these out wherever it runs; the four on nested namespaces and slashes are in the second part.
SKIPPED = {
    f"{TABLES}.createTableInUniqueLocation()",
    f"{TABLES}.createAndDropEmptyNamespace()",
    f"{TABLES}.listNamespacesWithEmptyNamespace()",
    f"{TABLES}.listTablesInEmptyNamespace()",
    f"{TABLES}.namespacePropertiesOnEmptyNamespace()",
    f"{TABLES}.testDropNamespaceWithNestedNamespace()",
    f"{TABLES}.testListNestedNamespaces()",
    f"{TABLES}.testNamespaceWithSlash()",
    f"{TABLES}.testTableNameWithSlash()",
    f"{VIEWS}.listViewsInEmptyNamespace()",
}


@pytest.fixture(scope="module", params=BACKENDS)
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Verdicts, Verdicts]]:
    home = tmp_path_factory.mktemp("rck")
    # The kit puts tables into folders of its own choice below /tmp, one after the other into the same.
    arguments, env = ["--external-root", "/tmp"], {"INVER_TABLES__HOLD": "0s"}
    with (
        new_database(request, request.param) as database,
        running_inver(home / "home", database, arguments, env) as server,
    ):
        for test in MORE:
            make_catalog(server, f"more_{test}")
        try:
            kit, more = run_kit(home / "kit", "more_", make_catalog(server, "rck_warehouse"))
        except JvmMissing as missing:
            pytest.skip(str(missing))
        print(kit, more, sep="\n")
        yield kit, more


def test_the_kit_passes(verdicts):
    kit, _ = verdicts
    assert set(kit.failed) == FAILED, str(kit)
    assert set(kit.skipped) == SKIPPED
    assert len(kit.passed) == MOST - len(FAILED) - len(SKIPPED)


def test_nested_namespaces_and_slashes_pass(verdicts):
    _, more = verdicts
    assert (more.failed, more.skipped, len(more.passed)) == ({}, {}, len(MORE)), str(more)
