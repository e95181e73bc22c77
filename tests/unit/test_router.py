from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.errors import Invalid, MethodNotAllowed, NotFound
from inver.protocols.http import Response, Route
from inver.server.router import Router
from tests.fixtures.http import Plain


def route(method: str, template: str) -> Route:
    return Route(method, template, lambda request: Response(200))


def face(name: str, mount: str, *routes: tuple[str, str]) -> Plain:
    return Plain(name, (mount,), tuple(route(*parts) for parts in routes))


DEFAULT = Plain("default", ())
API = face(
    "api",
    "/api",
    ("GET", "/tables/{name}"),
    ("DELETE", "/tables/{name}"),
    ("POST", "/tables/search"),
    ("GET", "/tables/{name}/files/{file}"),
    ("GET", "/tables/new/{kind}"),
    ("HEAD", "/exists/{name}"),
    ("GET", "/exists/{name}"),
    ("GET", ""),
)
INNER = face("inner", "/api/inner", ("GET", "/{x}"))
ROUTER = Router([API, INNER], DEFAULT)


def resolved(method: str, path: str, router: Router = ROUTER) -> tuple[str, tuple[str, ...]]:
    entry, args = router.resolve(method, path.encode())
    return entry.template, args


@pytest.mark.parametrize(
    ("path", "template", "args"),
    [
        ("/api", "/api", ()),
        ("/api/", "/api", ()),
        ("/api/tables/t", "/api/tables/{name}", ("t",)),
        ("/api/tables/t/", "/api/tables/{name}", ("t",)),
        ("/api/tables/a%2Fb", "/api/tables/{name}", ("a/b",)),
        ("/api/tables/a+b%2Bc%20d", "/api/tables/{name}", ("a b+c d",)),
        ("/api/tables/a%1Fb", "/api/tables/{name}", ("a\x1fb",)),
        ("/api/tables/%C3%A9", "/api/tables/{name}", ("é",)),
        ("/api/tables/%252F", "/api/tables/{name}", ("%2F",)),
        ("/api/tables/search", "/api/tables/{name}", ("search",)),
        ("/%61pi/t%61bles/t", "/api/tables/{name}", ("t",)),
        ("/api/tables/new/files/f", "/api/tables/{name}/files/{file}", ("new", "f")),
        ("/api/tables/new/delta", "/api/tables/new/{kind}", ("delta",)),
        ("/api/inner/tables", "/api/inner/{x}", ("tables",)),
    ],
)
def test_a_path_resolves_to_its_most_literal_template(
    path: str, template: str, args: tuple[str, ...]
) -> None:
    assert resolved("GET", path) == (template, args)
    assert resolved("GET", path) == (template, args)  # and again, from memory


@pytest.mark.parametrize(
    "path",
    ["/", "", "*", "/nothing", "/api/tables", "/api//tables/t", "/api/tables//", "/apis", "api/tables/t"],
)
def test_unknown_paths_are_not_found(path: str) -> None:
    with pytest.raises(NotFound) as caught:
        ROUTER.resolve("GET", path.encode())
    assert caught.value.kind == "route"


@pytest.mark.parametrize("segment", ["%", "%2", "%zz", "a%2", "%ff", "%C3", "%00", "a%00b", "%ED%A0%80"])
def test_a_segment_that_is_no_name_is_invalid_and_said_where(segment: str) -> None:
    with pytest.raises(Invalid, match="path segment 3") as caught:
        ROUTER.resolve("GET", f"/api/tables/{segment}".encode())
    assert caught.value.field == "path"


def test_raw_bytes_that_are_no_utf8_are_invalid() -> None:
    with pytest.raises(Invalid):
        ROUTER.resolve("GET", b"/api/tables/\xff")
    with pytest.raises(Invalid):
        ROUTER.resolve("GET", b"/api/tables/a\x00")
    assert resolved("GET", "/api/tables/é") == ("/api/tables/{name}", ("é",))


def test_a_method_that_is_not_there_says_which_are() -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        ROUTER.resolve("PUT", b"/api/tables/search")
    assert caught.value.allowed == ("DELETE", "GET", "HEAD", "POST")


def test_head_is_answered_by_get_unless_the_face_answers_it() -> None:
    entry, args = ROUTER.resolve("HEAD", b"/api/tables/t")
    assert (entry.method, entry.route.method, args) == ("HEAD", "GET", ("t",))
    assert ROUTER.resolve("HEAD", b"/api/exists/t")[0].route.method == "HEAD"
    with pytest.raises(MethodNotAllowed):
        Router([face("x", "/x", ("POST", "/y"))], DEFAULT).resolve("HEAD", b"/x/y")


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (b"/api/tables/t", "api"),
        (b"/api", "api"),
        (b"/api/", "api"),
        (b"/api/nothing/here", "api"),
        (b"/api/inner/nothing/here", "inner"),
        (b"/api/innermost", "api"),
        (b"/api/%zz", "api"),
        (b"/api/inner/%ff", "inner"),
        (b"/%61pi/x", "api"),
        (b"/apis", "default"),
        (b"/%ff/api", "default"),
        (b"", "default"),
        (b"*", "default"),
    ],
)
def test_every_path_has_an_owner(path: bytes, owner: str) -> None:
    found = ROUTER.owner(path).face
    assert isinstance(found, Plain)
    assert found.name == owner


def test_a_face_at_the_root_owns_everything_else() -> None:
    router = Router([face("root", "", ("GET", ""), ("GET", "/{x}")), API], DEFAULT)
    assert resolved("GET", "/", router) == ("", ())
    assert resolved("GET", "/x", router) == ("/{x}", ("x",))
    assert router.owner(b"/nothing/here").face is not DEFAULT
    assert router.owner(b"/api/nothing").face is API


@pytest.mark.parametrize(
    "faces",
    [
        [face("a", "/x", ("GET", "/{a}"), ("GET", "/{b}"))],
        [face("a", "/x", ("GET", "/y/z")), face("b", "/x/y", ("GET", "/z"))],
        [face("a", "/x"), face("b", "/x")],
        [face("a", "/x/")],
        [face("a", "x")],
        [face("a", "/{x}")],
        [face("a", "/x", ("GET", "/{a}.json"))],
        [face("a", "/x", ("GET", "/{}"))],
        [face("a", "/x", ("GET", "/y/"))],
    ],
)
def test_a_wrong_set_of_routes_fails_at_start(faces: list[Plain]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Router(faces, DEFAULT)


def test_all_routes_can_be_listed() -> None:
    router = Router([Plain("twice", ("/a", "/b"), (route("GET", "/x"), route("POST", "/x")))], DEFAULT)
    listed = [(mount, declared.method) for _, mount, declared in router.routes()]
    assert listed == [("/a", "GET"), ("/a", "POST"), ("/b", "GET"), ("/b", "POST")]
    assert len(router.entries) == 6  # HEAD comes with GET


def test_made_up_paths_do_not_fill_the_memory() -> None:
    router = Router([API], DEFAULT)
    for number in range(10_000):
        router.resolve("GET", b"/api/tables/t%d" % number)
    router.resolve("GET", b"/api/tables/" + b"x" * 10_000)
    assert len(router._memory) <= 4096
    assert all(len(path) < 600 for _, path in router._memory)


NAMES = st.text(st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"]), min_size=1)


@given(st.tuples(NAMES, NAMES))
def test_any_names_come_back_as_they_were_sent(names: tuple[str, str]) -> None:
    path = "/api/tables/{}/files/{}".format(*(quote(name, safe="") for name in names))
    assert resolved("GET", path)[1] == names


@given(st.binary(max_size=40))
def test_any_bytes_resolve_or_are_refused(path: bytes) -> None:
    ROUTER.owner(b"/" + path)
    try:
        ROUTER.resolve("GET", b"/api/tables/" + path)
    except (Invalid, NotFound):
        return
