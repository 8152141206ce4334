"""The load of a chaos run: changes and reads of chunks that all clients share, and files that each has for itself."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace

import threefs_client
from threefs_client import addresses
from threefs_client import context as client_link
from threefs_client.context import ClientContext
from threefs_client.data.reads import ReadFile
from threefs_client.options import Options

from tests.chaos.cluster import KEY
from tests.harness.history import History, Kind, Operation, Outcome
from threefs.errors import Retry, ThreefsError
from threefs.ids import InodeId, TableId
from threefs.layout import FileLayout

CHUNK_BYTES = 64 << 10
CHUNKS = 60
FIRST_INODE = 1 << 40  # far from those that the meta service gives away
_LENGTH = 2000
_TIMEOUT_S = 60.0


class Load:
    def __init__(self, address: str, clients: int, seed: int) -> None:
        self.history = History()
        self.operations = 0
        self.unknown = 0
        self.errors: list[str] = []
        self.longest = {"read": 0.0, "write": 0.0, "meta": 0.0}
        self.by_fault: dict[str, dict[str, float]] = {}
        self.fault: Callable[[], str] = lambda: ""  # what is wrong at this moment
        self.tell: Callable[[str], None] = lambda line: None  # prints a line with its time
        self._address = address
        self._clients = clients
        self._seed = seed
        self._stopping = False
        self._payloads = 0
        self._links: list[ClientContext] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._chunk_client(number))
            for number in range(2):
                group.create_task(self._file_client(number))

    def stop(self) -> None:
        self._stopping = True

    def _failed(self, what: str, began: float, error: ThreefsError) -> None:
        self.errors.append(f"{what} failed after {time.monotonic() - began:.1f} s: {error!r}")
        self.tell(self.errors[-1])

    def _done(self, kind: str, began: float, fault: str) -> None:
        lasted = time.monotonic() - began
        self.operations += 1
        self.longest[kind] = max(self.longest[kind], lasted)
        if fault:
            worst = self.by_fault.setdefault(fault, {})
            worst[kind] = max(worst.get(kind, 0.0), lasted)

    async def connect(self) -> ClientContext:
        options = Options(timeout_s=_TIMEOUT_S, connect_timeout_s=30.0, attempt_timeout_s=2.0, token=KEY)
        link = await client_link.connect(addresses.parse(self._address), options)
        self._links.append(link)
        return link

    async def close(self) -> None:
        for link in self._links:
            await link.close()

    # ---- chunks that all share

    async def _chunk_client(self, number: int) -> None:
        dice = random.Random(f"{self._seed}/{number}")
        link = await self.connect()
        while not self._stopping:
            chunk = dice.randrange(CHUNKS)
            if dice.random() < 0.5:
                await self.read(link, f"c{number}", chunk)
            else:
                await self._change(link, f"c{number}", chunk, dice)
            await asyncio.sleep(dice.uniform(0, 0.02))

    async def read(self, link: ClientContext, client: str, chunk: int) -> None:
        inode, layout = place(chunk)
        view = memoryview(bytearray(_LENGTH))
        begin, fault = time.monotonic(), self.fault()
        try:
            deadline = link.clock.monotonic() + _TIMEOUT_S
            await link.reader.read_into([(ReadFile(inode, layout, CHUNK_BYTES, 0), 0, view)], deadline)
        except ThreefsError as error:
            self._failed(f"read of {chunk}", begin, error)
            return
        end = time.monotonic()
        self.history.append(
            Operation(client, Kind.READ, str(chunk), begin, end, length=_LENGTH, result=bytes(view), padded=True)
        )
        self._done("read", begin, fault or self.fault())

    async def _change(self, link: ClientContext, client: str, chunk: int, dice: random.Random) -> None:
        inode, layout = place(chunk)
        self._payloads += 1
        kind = dice.choices([Kind.WRITE, Kind.TRUNCATE, Kind.REMOVE], [20, 1, 1])[0]
        offset = dice.randrange(_LENGTH // 2) if dice.random() < 0.3 else 0
        length = 1 + dice.randrange(_LENGTH - offset)
        payload = (f"<{self._payloads}>".encode() * length)[:length] if kind is Kind.WRITE else b""
        change = Operation(client, kind, str(chunk), time.monotonic(), None, Outcome.UNKNOWN, payload=payload)
        if kind is Kind.WRITE:
            change = replace(change, offset=offset)
        elif kind is Kind.TRUNCATE:
            change = replace(change, length=length)
        told = self.history.append(change)
        fault = self.fault()
        try:
            if kind is Kind.WRITE:
                await link.chunks.write(layout, inode, 0, offset, payload, timeout_s=_TIMEOUT_S)
            elif kind is Kind.TRUNCATE:
                await link.chunks.truncate(layout, inode, 0, length, timeout_s=_TIMEOUT_S)
            else:
                await link.chunks.remove(layout, inode, 0, timeout_s=_TIMEOUT_S)
        except ThreefsError as error:
            self._failed(f"{kind} of {chunk}", change.invoked, error)
            if error.retry is Retry.UNKNOWN:
                self.unknown += 1
            else:
                self.history.tell_again(told, replace(change, outcome=Outcome.FAILED, returned=time.monotonic()))
            return
        self.history.tell_again(told, replace(change, outcome=Outcome.OK, returned=time.monotonic()))
        self._done("write", change.invoked, fault or self.fault())

    # ---- files of one's own

    async def _file_client(self, number: int) -> None:
        dice = random.Random(f"{self._seed}/files/{number}")
        fs = await threefs_client.connect_async(self._address, timeout_s=_TIMEOUT_S, token=KEY)
        known: dict[str, bytes] = {}
        try:
            await fs.mkdir(f"/files{number}")
            while not self._stopping:
                began, fault = time.monotonic(), self.fault()
                try:
                    await self._file_step(fs, f"/files{number}", known, dice)
                except ThreefsError as error:
                    self._failed("file operation", began, error)
                    return
                self._done("meta", began, fault or self.fault())
                await asyncio.sleep(0.02)
            names = sorted([entry.name async for entry in fs.list(f"/files{number}")])
            assert names == sorted(known), f"{names} are there, {sorted(known)} should be"
        finally:
            await fs.close()

    async def _file_step(
        self, fs: "threefs_client.AsyncFileSystem", top: str, known: dict[str, bytes], dice: random.Random
    ) -> None:
        step = dice.random()
        if not known or step < 0.4:
            name, content = f"f{dice.randrange(40)}", dice.randbytes(dice.randrange(200_000))
            async with await fs.open(f"{top}/{name}", "wb") as file:
                await file.write(content)
            known[name] = content
            return
        name = dice.choice(sorted(known))
        if step < 0.7:
            async with await fs.open(f"{top}/{name}", "rb") as file:
                assert await file.read() == known[name], f"{top}/{name} has another content"
        elif step < 0.85:
            other = f"f{dice.randrange(40)}"
            await fs.rename(f"{top}/{name}", f"{top}/{other}")
            known[other] = known.pop(name)
        else:
            await fs.unlink(f"{top}/{name}")
            del known[name]


def place(chunk: int) -> tuple[InodeId, FileLayout]:
    return InodeId(FIRST_INODE + chunk), FileLayout(CHUNK_BYTES, TableId(1), 1, table_offset=chunk % 3)
