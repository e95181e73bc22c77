"""The jars of connectors, for those who want them: pinned by a lock file, fetched once, checked always.

They come from a repository with Maven's layout: one that is named, or wherever the user's own Maven looks.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from inver.errors import Broken, Invalid

LOCK = Path(__file__).with_name("jars.lock")
REPOSITORY = "INVER_MAVEN_REPOSITORY"
RESOLVE_SECONDS = 600
_CHUNK = 1 << 20

Show = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Jar:
    connector: str
    coordinate: str
    sha256: str

    @property
    def file(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def path(self) -> str:
        """Below a repository."""
        group, artifact, version = self.coordinate.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{self.file}"

    def is_in(self, folder: Path) -> bool:
        path = folder / self.file
        return path.is_file() and _sha256(path) == self.sha256


def locked(connectors: Sequence[str] = ()) -> list[Jar]:
    """The jars of these connectors, of all by default."""
    lock = msgspec.json.decode(LOCK.read_bytes(), type=dict[str, dict[str, str]])
    unknown = sorted(set(connectors) - set(lock))
    if unknown:
        raise Invalid(
            f"there is no connector {unknown[0]!r}", field="connector", fix=f"name one of {', '.join(lock)}"
        )
    return [
        Jar(connector, coordinate, sha256)
        for connector, jars in lock.items()
        if not connectors or connector in connectors
        for coordinate, sha256 in jars.items()
    ]


def fetch(jars: Sequence[Jar], folder: Path, repository: str | None, show: Show) -> int:
    """Bring what is missing or wrong in the folder; how many that were."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [jar for jar in jars if not jar.is_in(folder)]
    repository = repository or os.environ.get(REPOSITORY)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as name:
        arriving = Path(name)
        if missing and repository is None:
            show(0.0, f"Maven resolves {len(missing)} jars")
            coordinates = [jar.coordinate for jar in missing]
            resolve(arriving, pom("jars", coordinates, transitive=False), ", ".join(coordinates))
        for done, jar in enumerate(missing):
            show(done / len(missing), jar.file)
            if repository is not None:
                _download(f"{repository.rstrip('/')}/{jar.path}", arriving / jar.file)
            if not jar.is_in(arriving):
                raise Broken(
                    f"{jar.file} is not the one that is pinned: its checksum is another",
                    fix="do not use it; ask who runs the repository, or name another with --repository",
                )
            os.replace(arriving / jar.file, folder / jar.file)
    show(1.0, "")
    return len(missing)


def resolve(folder: Path, project: str, wanted: str) -> None:
    """Let Maven bring what a project depends on."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Broken(
            "mvn is not on the PATH, and no repository is named",
            fix=f"install Maven, or name a repository with --repository or {REPOSITORY}",
        )
    (folder / "pom.xml").write_text(project)
    command = [
        *(maven, "--batch-mode", "--quiet", "--no-transfer-progress"),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
    ]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RESOLVE_SECONDS)
    if ran.returncode != 0:
        lines = [line.partition("[ERROR] ")[2] for line in ran.stdout.splitlines() if "[ERROR]" in line]
        raise Broken(f"Maven does not resolve {wanted}: {(lines or [ran.stderr])[0]}")


def pom(name: str, coordinates: Iterable[str], *, transitive: bool) -> str:
    """A project that depends on these jars, with everything that they depend on or alone.

    A coordinate is `group:artifact:version`, or `group:artifact:version:classifier`.
    """
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = []
    for coordinate in coordinates:
        group, artifact, version, *classifier = map(escape, coordinate.split(":"))
        kind = "".join(f"<classifier>{name}</classifier>" for name in classifier)
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version>{kind}{'' if transitive else alone}</dependency>"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>inver</groupId>"
        f"<artifactId>{escape(name)}</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{''.join(dependencies)}</dependencies>"
        "</project>"
    )


def _download(url: str, target: Path) -> None:
    if not url.startswith(("https://", "http://", "file://")):
        raise Invalid(f"{url!r} is no address of a repository", field="repository")
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file, _CHUNK)
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise Broken(f"{url} cannot be fetched: {reason}", fix="name another repository") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
