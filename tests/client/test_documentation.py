"""The examples of the guide run against a real broker."""

import ast
import asyncio
import inspect
import re
from pathlib import Path

from tests.broker.helpers import address, asynchronous, broker

GUIDE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text("utf-8")


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@asynchronous
async def test_the_examples_of_the_guide_hold():
    names = {"__name__": "guide"}
    assert len(blocks("python")) == 4
    for block in blocks("python"):
        async with broker() as it:
            text = block.replace("tcp://127.0.0.1:7400", address(it))
            result = eval(compile(text, "clients.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(result):
                await result


@asynchronous
async def test_the_example_without_asyncio_holds():
    (block,) = blocks("python sync")
    async with broker() as it:
        code = compile(block.replace("tcp://127.0.0.1:7400", address(it)), "clients.md", "exec")
        await asyncio.to_thread(exec, code, {})
