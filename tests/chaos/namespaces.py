"""A network of this machine alone: a bridge, and a network namespace per storage process. All of it goes away again."""

import os
import subprocess
from collections.abc import Sequence

HOST = "host"  # this machine: the manager, the meta service, the clients
_NOBODY = "02:00:00:de:ad:01"


class Unprivileged(Exception):
    """Network namespaces cannot be made here."""


class Network:
    """Namespaces `names`, each with an address of its own; this machine is at `gateway`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._tag = f"c{os.getpid() % 100_000}"
        self._subnet = f"10.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.gateway = f"{self._subnet}.1"
        self.addresses = {name: f"{self._subnet}.{number}" for number, name in enumerate(names, 11)}
        self._bridge = f"{self._tag}br"
        self._bridged = False
        self._made: list[str] = []

    def __enter__(self) -> "Network":
        try:
            self._ip("link", "add", self._bridge, "type", "bridge")
            self._bridged = True
            self._ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
            self._ip("link", "set", self._bridge, "up")
            for name, address in self.addresses.items():
                self._add(name, address)
        except (subprocess.CalledProcessError, FileNotFoundError, PermissionError) as error:
            self.close()
            raise Unprivileged(f"no network namespaces: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, name: str, address: str) -> None:
        space = self._space(name)
        outside, inside = f"{space}o", f"{space}i"
        self._ip("netns", "add", space)
        self._made.append(space)
        self._ip("link", "add", outside, "type", "veth", "peer", "name", inside)
        self._ip("link", "set", inside, "netns", space)
        self._ip("link", "set", outside, "master", self._bridge, "up")
        self._ip("-n", space, "addr", "add", f"{address}/24", "dev", inside)
        self._ip("-n", space, "link", "set", inside, "up")
        self._ip("-n", space, "link", "set", "lo", "up")

    def close(self) -> None:
        for space in self._made:
            self._ip("netns", "del", space, check=False)
        if self._bridged:
            self._ip("link", "del", self._bridge, check=False)

    def inside(self, name: str) -> list[str]:
        """What to put before a command, so that it runs there.

        `ip netns exec` would give it a copy of all mounts too: what is unmounted here would go on there.
        """
        return ["nsenter", f"--net=/run/netns/{self._space(name)}", "--"]

    def block(self, name: str, to: str) -> None:
        """Packets from `name` to `to` are lost without a word, those the other way are not. One of them may be HOST.

        They are sent to a hardware address that nobody has: unlike a route that refuses, no socket hears of it.
        """
        self._neighbour(name, "replace", self._address(to), "lladdr", _NOBODY, "nud", "permanent")

    def unblock(self, name: str, to: str) -> None:
        self._neighbour(name, "del", self._address(to))

    def _neighbour(self, name: str, verb: str, address: str, *words: str) -> None:
        if name == HOST:
            self._ip("neigh", verb, address, *words, "dev", self._bridge)
        else:
            space = self._space(name)
            self._ip("-n", space, "neigh", verb, address, *words, "dev", f"{space}i")

    def _address(self, name: str) -> str:
        return self.gateway if name == HOST else self.addresses[name]

    def unplug(self, name: str) -> None:
        """Nothing gets in or out."""
        self._ip("link", "set", f"{self._space(name)}o", "down", check=False)

    def plug(self, name: str) -> None:
        self._ip("link", "set", f"{self._space(name)}o", "up", check=False)

    def _space(self, name: str) -> str:
        return f"{self._tag}{name}"

    def _ip(self, *words: str, check: bool = True) -> None:
        subprocess.run(["ip", *words], check=check, capture_output=True)
