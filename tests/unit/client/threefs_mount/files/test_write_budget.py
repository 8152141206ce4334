import asyncio

from threefs_mount.files.write_budget import WriteBudget


class File:
    def __init__(self, room: WriteBudget) -> None:
        self.room = room
        self.asked = 0

    def start_flush(self) -> None:
        self.asked += 1


def test_when_there_is_no_room_all_files_send() -> None:
    async def play() -> None:
        files: dict[int, File] = {}
        room = WriteBudget(10, files)
        files[1], files[2] = File(room), File(room)
        await room.take(6)
        assert room.try_take(4) and not room.try_take(1)
        assert [file.asked for file in files.values()] == [0, 0]
        waiting = asyncio.ensure_future(room.take(3))
        await asyncio.sleep(0)
        assert not waiting.done() and [file.asked for file in files.values()] == [1, 1]
        room.give(6)
        await asyncio.wait_for(waiting, 1)

    asyncio.run(play())
