"""`inver completion`: a script for the shell, made from the commands themselves."""

from __future__ import annotations

from argparse import Action, Namespace

from inver.cli import output
from inver.cli.options import Subparsers, verb
from inver.cli.tree import Command, tree

SHELLS = ("bash", "zsh", "fish")


def add(commands: Subparsers) -> None:
    parser = verb(
        commands,
        "completion",
        completion,
        "print a script that completes commands in a shell",
        "source <(inver completion bash)",
        "inver completion zsh > _inver                    # in a folder of fpath",
        "inver completion fish > inver.fish               # in ~/.config/fish/completions",
        shows=False,
        remote=False,
    )
    parser.add_argument("shell", choices=SHELLS, help="one of bash, zsh, fish")


def completion(arguments: Namespace) -> int:
    from inver.cli.main import parser

    commands = list(tree(parser()).walk())
    output.write({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](commands))
    return 0


def bash(commands: list[Command]) -> str:
    return "\n".join(
        [
            "# bash completion for inver",
            _WORDS.format(cases="\n".join(_cases(commands))),
            "_inver() {",
            "    local at='' word i previous=''",
            '    for ((i = 1; i < COMP_CWORD; i++)); do word="${COMP_WORDS[i]}"',
            '        _inver_words "$at/$word" >/dev/null && at="$at/$word"',
            "    done",
            '    previous="${COMP_WORDS[COMP_CWORD - 1]}"',
            '    local words; words="$(_inver_words "$at $previous" || _inver_words "$at")"',
            '    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))',
            "}",
            "complete -o default -F _inver inver",
            "",
        ]
    )


def zsh(commands: list[Command]) -> str:
    return "\n".join(
        [
            "#compdef inver",
            _WORDS.format(cases="\n".join(_cases(commands))),
            "_inver() {",
            "    local at='' word found",
            "    for word in ${words[2,CURRENT-1]}; do",
            '        _inver_words "$at/$word" >/dev/null && at="$at/$word"',
            "    done",
            '    found="$(_inver_words "$at ${words[CURRENT-1]}" || _inver_words "$at")"',
            "    compadd -- ${=found} || _files",
            "}",
            'if [ "$funcstack[1]" = "_inver" ]; then _inver "$@"; else compdef _inver inver; fi',
            "",
        ]
    )


def fish(commands: list[Command]) -> str:
    known = " ".join("/" + "/".join(command.path) for command in commands if command.path)
    lines = ["# fish completion for inver", f"set -g __inver_known {known}", _FISH_AT]
    for command in commands:
        here = "/" + "/".join(command.path) if command.path else ""
        at = f"-n '__inver_at \"{here}\"'"
        for child in command.children:
            lines.append(f"complete -c inver -f {at} -a {child.path[-1]} -d {_quoted(child.help)}")
        for positional in command.positionals:
            if positional.choices:
                lines.append(f"complete -c inver -f {at} -a {_quoted(' '.join(positional.choices))}")
        lines.extend(_fish_option(at, option) for option in command.options)
    return "\n".join([*lines, ""])


def _fish_option(at: str, option: Action) -> str:
    names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.option_strings)
    values = f" -x -a {_quoted(' '.join(option.choices))}" if option.choices else ""
    needs = " -r" if option.nargs != 0 and not option.choices else ""
    return f"complete -c inver {at} {names}{values}{needs} -d {_quoted(_help(option))}"


def _cases(commands: list[Command]) -> list[str]:
    """What may follow each command, and each option that has a choice of values."""
    lines: list[str] = []
    for command in commands:
        here = "".join(f"/{name}" for name in command.path)
        words = [child.path[-1] for child in command.children]
        words += [choice for positional in command.positionals for choice in positional.choices or ()]
        words += [name for option in command.options for name in option.option_strings]
        lines.append(f"    '{here}') echo '{' '.join(words)}' ;;")
        for option in command.options:
            if option.choices:
                labels = " | ".join(f"'{here} {name}'" for name in option.option_strings)
                lines.append(f"    {labels}) echo '{' '.join(option.choices)}' ;;")
    return lines


def _help(option: Action) -> str:
    return (option.help or "").replace("%(default)s", str(option.default)).replace("%%", "%")


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_WORDS = """\
_inver_words() {{
    case "$1" in
{cases}
    *) return 1 ;;
    esac
}}"""
_FISH_AT = """\
function __inver_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        contains -- "$at/$word" $__inver_known; and set at "$at/$word"
    end
    test "$at" = "$argv[1]"
end"""
