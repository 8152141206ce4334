"""Rules of the state machine about the content of files, by path and through open files."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.harness.differential_trees import CLIENT, DATA, DRIVERS, OFFSETS, PATHS, SIZES, Opened, TwoTrees
from tests.harness.fs_drivers import outcome

SLOTS = st.integers(0, 5)
MAX_OPEN = 6
KEEP, PUNCH, ZERO = 1, 2, 16  # modes of fallocate


class ContentRules(TwoTrees):
    @rule(driver=DRIVERS, path=PATHS, data=DATA)
    def write(self, driver: str, path: str, data: bytes) -> None:
        self.same(driver, lambda tree: tree.write(path, data))

    @rule(driver=DRIVERS, path=PATHS)
    def read(self, driver: str, path: str) -> None:
        self.same(driver, lambda tree: tree.read(path))

    @rule(driver=DRIVERS, path=PATHS, data=DATA)
    def append(self, driver: str, path: str, data: bytes) -> None:
        self.same(driver, lambda tree: tree.append(path, data))

    @rule(driver=DRIVERS, path=PATHS, length=st.one_of(OFFSETS, SIZES))
    def truncate(self, driver: str, path: str, length: int) -> None:
        self.same(driver, lambda tree: tree.truncate(path, length))

    @rule(driver=DRIVERS, rows=st.lists(st.tuples(PATHS, OFFSETS, DATA), min_size=1, max_size=4))
    def write_batch(self, driver: str, rows: list[tuple[str, int, bytes]]) -> None:
        self.same(driver, lambda tree: tree.write_at(rows), places=len(rows))

    @rule(driver=DRIVERS, rows=st.lists(st.tuples(PATHS, OFFSETS, SIZES), min_size=1, max_size=4))
    def read_batch(self, driver: str, rows: list[tuple[str, int, int]]) -> None:
        self.same(driver, lambda tree: tree.read_at(rows), places=len(rows))

    # ---- open files ----

    @precondition(lambda self: len(self.opened) < MAX_OPEN)
    @rule(driver=DRIVERS, path=PATHS, mode=st.sampled_from(("rb", "rb", "r+b", "r+b", "wb", "w+b", "xb", "ab", "a+b")))
    def open(self, driver: str, path: str, mode: str) -> None:
        self.settle(driver)
        self.tell(driver, lambda: (path, mode))
        mine = outcome(lambda: self.local.open(path, mode))
        theirs = outcome(lambda: self.driver(driver).open(path, mode))
        if mine.error or theirs.error:
            assert theirs.error == mine.error, f"{driver}: {theirs}; a local directory: {mine}"
        else:
            self.opened.append(Opened(self.name_of(driver), theirs.value, mine.value, mode))
        self.note_versions()

    def choose(self, slot: int) -> Opened:
        return self.opened[slot % len(self.opened)]

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS, offset=OFFSETS, data=DATA)
    def write_open_file(self, slot: int, offset: int, data: bytes) -> None:
        one = self.choose(slot)
        if one.mode in ("ab", "a+b"):
            self.change_file(one, lambda file: file.append(data))
        elif one.writable:
            self.change_file(one, lambda file: file.pwrite(offset, data))

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS, offset=OFFSETS, size=SIZES)
    def read_open_file(self, slot: int, offset: int, size: int) -> None:
        one = self.choose(slot)
        if one.readable:
            self.same_file(one, lambda file: file.pread(offset, size))

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS, length=OFFSETS)
    def truncate_open_file(self, slot: int, length: int) -> None:
        one = self.choose(slot)
        if one.writable:
            self.change_file(one, lambda file: file.truncate(length))

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS, offset=OFFSETS, length=SIZES, mode=st.sampled_from((0, KEEP, KEEP | PUNCH, ZERO, KEEP | ZERO)))
    def allocate_in_open_file(self, slot: int, offset: int, length: int, mode: int) -> None:
        one = self.choose(slot)
        if one.writable:
            self.change_file(one, lambda file: file.allocate(offset, length, mode))

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS)
    def sync_open_file(self, slot: int) -> None:
        self.sync(self.choose(slot))

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS)
    def close_open_file(self, slot: int) -> None:
        self.close_file(self.choose(slot))

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS, exclusive=st.booleans())
    def lock_open_file(self, slot: int, exclusive: bool) -> None:
        one = self.choose(slot)
        if one.mine.inode() in self.lost_locks:  # they end with the lease of the mount that was killed
            return
        if not self.same_file(one, lambda file: file.lock(exclusive)).error:
            one.locked = True
        elif one.locked:  # a lock that cannot be changed is lost locally, and stays in threefs
            self.unlock_open_file(slot)

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS)
    def unlock_open_file(self, slot: int) -> None:
        one = self.choose(slot)
        self.same_file(one, lambda file: file.unlock())
        one.locked = False

    @precondition(lambda self: self.opened)
    @rule(slot=SLOTS)
    def everybody_reads_what_was_synced(self, slot: int) -> None:
        one = self.choose(slot)
        self.sync(one)
        self.compare(CLIENT)
