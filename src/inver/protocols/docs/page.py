"""The API's document as a page for people. It needs no script and loads nothing."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from inver.protocols.docs.curl import command
from inver.protocols.docs.fields import Row, Schemas, limits
from inver.protocols.docs.markup import Html, el, inline, join, paragraphs

Json = dict[str, Any]

STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
Marks = dict[bool, Html]

# Who sends must know what may not be missing, who receives what may be.
_REQUIRED: Marks = {True: el("span", "required", class_="required"), False: Html("")}
_OPTIONAL: Marks = {True: Html(""), False: el("span", "optional", class_="optional")}

_METHODS = ("get", "post", "put", "patch", "delete")


def render(document: Json, raw: str) -> bytes:
    """`raw` is where the document itself is served."""
    return _Page(document, raw).render().encode()


class _Page:
    def __init__(self, document: Json, raw: str) -> None:
        self._document = document
        self._raw = raw
        self._schemas = Schemas(document)
        self._base = document["servers"][0]["url"]
        self._groups: dict[str, list[tuple[str, str, Json]]] = {
            tag["name"]: [] for tag in document.get("tags", ())
        }
        for path, item in document["paths"].items():
            for method in _METHODS:
                if method in item:
                    operation = item[method]
                    group = self._groups.setdefault(operation["tags"][0], [])
                    group.append((method.upper(), path, operation))

    def render(self) -> Html:
        info = self._document["info"]
        head = join(
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", info["title"]),
            el("style", Html(STYLE)),
        )
        header = el(
            "header",
            el("h1", info["title"]),
            el(
                "p",
                f"Version {info['version']} · below ",
                el("code", self._base),
                " · ",
                el("a", "OpenAPI document", href=self._raw),
                class_="facts",
            ),
            paragraphs(info.get("description", "")),
        )
        body = join(
            el("a", "Skip to the operations", href="#operations", class_="skip"),
            el("div", self._nav(), el("main", header, self._sections()), class_="layout"),
        )
        return join(Html("<!doctype html>\n"), el("html", el("head", head), el("body", body), lang="en"))

    def _nav(self) -> Html:
        groups = []
        for tag, operations in self._groups.items():
            links = [
                el(
                    "li",
                    el("a", _badge(method), " ", _shown_id(operation), href="#" + operation["operationId"]),
                )
                for method, _, operation in operations
            ]
            groups.append(el("li", el("a", tag, href="#tag-" + tag, class_="tag"), el("ul", *links)))
        return el("nav", el("ul", *groups), aria_label="Operations")

    def _sections(self) -> Html:
        about = {tag["name"]: tag.get("description", "") for tag in self._document.get("tags", ())}
        sections = []
        for tag, operations in self._groups.items():
            shown = [self._operation(*each) for each in operations]
            title = el("h2", tag)
            sections.append(
                el("section", title, paragraphs(about.get(tag, "")), *shown, id="tag-" + tag, class_="group")
            )
        return el("div", *sections, id="operations")

    def _operation(self, method: str, path: str, operation: Json) -> Html:
        parameters = [self._schemas.resolve(each) for each in operation.get("parameters", ())]
        name = operation["operationId"]
        marks = [el("span", "public", class_="mark")] if operation.get("security") == [] else []
        title = el(
            "h3",
            _badge(method),
            " ",
            el("a", el("code", _breakable(path)), href="#" + name),
            *marks,
        )
        example = el("pre", el("code", command(method, path, operation, parameters, self._base)))
        return el(
            "article",
            title,
            el("p", operation.get("summary", ""), class_="summary"),
            paragraphs(operation.get("description", "")),
            self._parameters(parameters),
            self._request(operation),
            self._responses(operation),
            _part("Example", example),
            id=name,
        )

    def _parameters(self, parameters: list[Json]) -> Html:
        if not parameters:
            return Html("")
        rows = [
            Row(
                each["name"],
                0,
                f"{self._schemas.kind(each['schema'])}, in the {each['in']}",
                each.get("required", False),
                " ".join(filter(None, (each.get("description", ""), _bounds(each["schema"])))),
            )
            for each in parameters
        ]
        return _part("Parameters", _table(rows, _REQUIRED))

    def _request(self, operation: Json) -> Html:
        shown = []
        for content_type, media in operation.get("requestBody", {}).get("content", {}).items():
            shown.append(self._type(content_type, media["schema"], _REQUIRED))
        return _part("Request body", *shown) if shown else Html("")

    def _responses(self, operation: Json) -> Html:
        answers, errors = [], []
        for status, given in operation["responses"].items():
            response = self._schemas.resolve(given)
            if status.startswith("2"):
                answers.append(self._answer(status, response))
            else:
                errors.append(el("li", el("b", status), el("span", inline(response["description"]))))
        return join(_part("Answer", *answers), _part("Errors", el("ul", *errors, class_="errors")))

    def _answer(self, status: str, response: Json) -> Html:
        line: list[str] = [el("b", f"{status} {HTTPStatus(int(status)).phrase}")]
        for header in response.get("headers", {}):
            line.extend([" with header ", el("code", header)])
        shown = [el("p", *line)]
        for content_type, media in response.get("content", {}).items():
            shown.append(self._type(content_type, media["schema"], _OPTIONAL))
        return join(*shown)

    def _type(self, content_type: str, given: Json, marks: Marks) -> Html:
        schema = self._schemas.resolve(given)
        title = join(el("b", schema.get("title", "")), " as ", el("code", content_type))
        return el(
            "details",
            el("summary", title),
            paragraphs(schema.get("description", "")),
            _table(self._schemas.rows(schema), marks),
            open="",
        )


def _part(title: str, *children: str) -> Html:
    return el("div", el("h4", title), *children, class_="part")


def _badge(method: str) -> Html:
    return el("span", method, class_="method " + method.lower())


def _shown_id(operation: Json) -> str:
    return str(operation["operationId"]).replace("_", " ")


def _breakable(path: str) -> Html:
    """A long path may be broken after each slash."""
    return Html("/<wbr>".join(join(part) for part in path.split("/")))


def _bounds(schema: Json) -> str:
    return "" if schema.get("minLength") == 1 and "maxLength" not in schema else limits(schema)


def _table(rows: Iterable[Row], marks: Marks) -> Html:
    lines = []
    for row in rows:
        indent = f"d{min(row.depth, 4)}"
        if row.variant:
            title = el("td", el("b", row.name), " ", inline(row.about), colspan="3", class_=indent)
            lines.append(el("tr", title, class_="variant"))
            continue
        name = join(el("code", row.name), marks[row.required])
        lines.append(
            el(
                "tr",
                el("td", name, class_=indent),
                el("td", inline(row.kind)),
                el("td", inline(row.about)),
            )
        )
    head = el("thead", el("tr", *(el("th", text, scope="col") for text in ("Name", "Type", "Meaning"))))
    return el("div", el("table", head, el("tbody", *lines)), class_="scroll")
