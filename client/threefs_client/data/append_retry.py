"""Appends of one file object that are repeated after a failure, without writing their bytes twice."""

from threefs.checksums import crc32c
from threefs.wire import meta_pb2 as pb
from threefs_client.data.handles import AppendCut, AppendRange, Handle


class AppendRetry:
    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._range: AppendRange | None = None  # of the first bytes, after a failed append
        self._reservation: tuple[int, pb.Mutation] | None = None  # (length, identity) of a call that may be repeated
        self._whole: tuple[int, int] | None = None  # (length, checksum) of the bytes, after a failed `append_whole`

    async def append(self, view: memoryview) -> tuple[int, int]:
        """Append the beginning of these bytes. Returns how many, and their end in the file.

        After a failure the caller repeats it with the same bytes, which may be followed by others. Bytes with a range
        from the failed attempt are written to the same range, because they may be there already.
        """
        while True:
            reserved = await self._place(view)
            length = reserved.end - reserved.offset
            try:
                await self._handle.write_reserved(reserved, view[:length])
                break
            except AppendCut:
                self._handle.append_finished(reserved)
                self._range = None
                await self._handle.wait_for_truncate()
        self._range = None
        return length, reserved.end

    async def append_whole(self, view: memoryview) -> int:
        """Append bytes that nobody keeps after a failure. Returns their end in the file.

        The caller may repeat it with the same bytes, as its next call, or must call `give_up_whole`.
        """
        try:
            _, end = await self.append(view)
        except BaseException:
            self._whole = len(view), crc32c(view)
            raise
        self._whole = None
        return end

    @property
    def may_be_repeated(self) -> bool:
        """`append_whole` has failed."""
        return self._whole is not None

    def is_repeated_by(self, view: memoryview) -> bool:
        """Whether `append_whole` has failed with the same bytes."""
        return self._whole is not None and self._whole == (len(view), crc32c(view))

    def give_up_whole(self) -> None:
        """If `append_whole` has failed, it is not repeated. What it has written stays, as what it may still write."""
        if self._whole is not None:
            if self._range is not None:
                self._handle.append_finished(self._range)
            self._range = self._reservation = self._whole = None

    async def _place(self, view: memoryview) -> AppendRange:
        reserved = self._range
        if reserved is None:
            wanted = self._reservation = self._reservation or (len(view), self._handle.context.meta.mutation())
            reserved = self._range = await self._handle.reserve_append(*wanted)
            self._reservation = None
        return reserved
