import asyncio

from threefs_client.data.write_budget import WriteBudget


class File:
    def __init__(self) -> None:
        self.asked = 0

    def start_flush(self) -> None:
        self.asked += 1


async def test_when_there_is_no_room_all_files_send() -> None:
    files = [File(), File(), File()]
    room = WriteBudget(10)
    for file in files:
        room.add_dirty(file)
    room.remove_dirty(files[2])
    await room.take(6)
    assert room.try_take(4) and not room.try_take(1)
    assert [file.asked for file in files] == [0, 0, 0]
    waiting = asyncio.ensure_future(room.take(3))
    await asyncio.sleep(0)
    assert not waiting.done() and [file.asked for file in files] == [1, 1, 0]
    room.give(6)
    await asyncio.wait_for(waiting, 1)


async def test_a_higher_limit_lets_those_in_who_wait() -> None:
    room = WriteBudget(10)
    assert room.try_take(8)
    waiting = asyncio.create_task(room.take(8))
    await asyncio.sleep(0)
    assert not waiting.done()
    room.set_limit(16)
    await waiting
    assert room.limit_bytes == 16 and room.used_bytes == 16
    room.set_limit(4)
    assert not room.try_take(1)
    room.give(16)
    assert room.try_take(4)
