"""Threads for work that takes long, so that it never keeps storage or a commit waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 4
_END = object()


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads(), partial(work, *args, **kwargs))


async def pulled(blocking: Iterator[T]) -> AsyncIterator[T]:
    """Items of an iterator that blocks, each made in a thread when somebody wants it."""
    while (item := await in_thread(lambda: next(cast(Iterator[object], blocking), _END))) is not _END:
        yield cast(T, item)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="inver-log")
