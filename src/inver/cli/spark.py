"""`inver spark`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, noun, verb

if TYPE_CHECKING:
    from inver.pipeline.jars import Jar


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "spark", "prepare Spark for the care of tables", "inver spark jars --list")
    jars_ = verb(
        verbs,
        "jars",
        jars,
        "fetch the pinned jars of connectors, and print their folder",
        "inver spark jars --list",
        "inver spark jars --list iceberg -o json",
        about=(
            "Delta and Lance tables are cared for without them; Iceberg tables need the one of Iceberg, "
            "and on S3 that of iceberg-aws. "
            "They come from the repository that --repository or INVER_MAVEN_REPOSITORY names, or from "
            "wherever Maven looks, and a jar with another checksum than the pinned one is refused."
        ),
        remote=False,
    )
    jars_.add_argument(
        "connector", nargs="*", help="only the jars of these: delta, iceberg, iceberg-aws (default: all)"
    )
    jars_.add_argument("--folder", type=Path, help="where to put them (default: in the user's cache)")
    jars_.add_argument("--repository", metavar="URL", help="a repository with Maven's layout")
    jars_.add_argument("--list", action="store_true", help="show what is pinned, and fetch nothing")


def jars(arguments: Namespace) -> int:
    from inver.cli.progress import Progress
    from inver.pipeline.jars import fetch, locked
    from inver.pipeline.java import cache_folder

    wanted = locked(arguments.connector)
    if arguments.list:
        columns: list[output.Column[Jar]] = [
            ("CONNECTOR", lambda jar: jar.connector),
            ("COORDINATE", lambda jar: jar.coordinate),
            ("SHA256", lambda jar: jar.sha256),
        ]
        output.show_list(arguments, wanted, columns, lambda jar: jar.coordinate)
        return 0
    folder = (arguments.folder or cache_folder() / "jars").absolute()
    with Progress(1, not arguments.quiet) as progress, progress.step("jars") as show:
        fetched = fetch(wanted, folder, arguments.repository, show)
    if arguments.output == "table" or arguments.quiet:
        output.write(f"{output.visible(str(folder))}\n")
    else:
        files = [jar.file for jar in wanted]
        output.show_value(arguments, {"folder": str(folder), "files": files, "fetched": fetched})
    return 0
