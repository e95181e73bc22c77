"""The commands as a tree, for whatever is made from it: completion scripts and the reference page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """`path` is what is typed after `inver`; empty for `inver` itself."""

    path: tuple[str, ...]
    help: str
    parser: argparse.ArgumentParser
    children: tuple[Command, ...]

    @property
    def options(self) -> list[argparse.Action]:
        return [
            action
            for action in self.parser._actions
            if action.option_strings and action.help != argparse.SUPPRESS
        ]

    @property
    def positionals(self) -> list[argparse.Action]:
        return [
            action
            for action in self.parser._actions
            if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
        ]

    @property
    def examples(self) -> list[str]:
        """The lines of its help that can be run."""
        lines = (self.parser.epilog or "").splitlines()
        return [line.strip() for line in lines if line.startswith("  ")]

    def walk(self) -> Iterator[Command]:
        yield self
        for child in self.children:
            yield from child.walk()


def tree(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), text: str = "") -> Command:
    children: list[Command] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                inner = action.choices[choice.dest]
                children.append(tree(inner, (*path, choice.dest), choice.help or ""))
    return Command(path, text, parser, tuple(children))
