"""The commands of docs/http.md run as they stand, in their order, and answer what the page says."""

import asyncio
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

from tests.broker.http.helpers import LOCAL, Sink, asynchronous, door, eventually

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text("utf-8")
STEPS = re.findall(r"^```sh\n(.*?)^```(?:\n```json\n(.*?)^```)?", PAGE, re.DOTALL | re.MULTILINE)


def requests(block):
    """The requests of a block of curl commands: method, path, headers and body of each."""
    for command in re.split(r"^(?=curl )", block, flags=re.MULTILINE):
        words = shlex.split(command)
        if not words:
            continue
        headers, body = {}, None
        for flag, word in pairwise(words):
            if flag == "-H":
                name, _, value = word.partition(":")
                headers[name] = value.strip()
            elif flag == "-d":
                body = word.replace("\n", "").encode()  # as curl reads it
        (url,) = (word for word in words if word.startswith("localhost:8080/"))
        yield "GET" if body is None else "POST", url.removeprefix("localhost:8080"), headers, body


async def stream_of(opened, url, block):
    """Read the stream that a command asks for until an event comes."""
    query = shlex.split(block)[-1].removeprefix("filter=")
    async with opened.http.stream("GET", url, params={"filter": query}) as response:
        lines = response.aiter_lines()
        while not (line := await anext(lines)).startswith("data: "):
            pass
        return json.loads(line.removeprefix("data: "))


@asynchronous
async def test_the_commands_of_the_page_do_what_it_says():
    seen = []
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        for block, said in STEPS:
            if "-N -G" in block:
                reading = asyncio.create_task(stream_of(opened, "/events", block))
                await eventually(lambda: opened.bus.stats().subscriptions)
                for again, _ in STEPS[:2]:  # "while the commands above are given again"
                    for _, path, headers, body in requests(again):
                        await opened.http.post(path, headers=headers, content=body)
                assert (await reading)["data"]["price"] < 300
                continue
            for method, path, headers, body in requests(block):
                body = body and body.replace(b"http://127.0.0.1:9000/hook", sink.url.encode())
                answer = await opened.http.request(method, path, headers=headers, content=body)
                seen.append(answer.status_code)
                if said:
                    assert answer.json() == json.loads(said)
    assert len(STEPS) == 7
    assert seen == [202, 202, 202, 400, 201, 201, 200, 400]
