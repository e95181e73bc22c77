"""Print the counts of a JUnit report as one plain line: `python3 scripts/count.py build/junit.xml`.

An error in setting a test up counts as failed. Without a report no test ran, and the counts are zero.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count(report: Path) -> str:
    suites = list(ElementTree.parse(report).iter("testsuite")) if report.exists() else []

    def total(attribute: str) -> int:
        return sum(int(suite.get(attribute, "0")) for suite in suites)

    failed = total("failures") + total("errors")
    passed = total("tests") - failed - total("skipped")
    return f"{passed} passed, {failed} failed, {total('skipped')} skipped"


if __name__ == "__main__":
    print(count(Path(sys.argv[1])))
