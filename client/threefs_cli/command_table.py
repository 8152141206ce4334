"""The commands of `threefs`: where each of them is, and its line in the list of all.

A command's module is imported when the command is asked for. All of them together take longer to import than most
commands take to run.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

import click


@dataclass(frozen=True, slots=True)
class Row:
    module: str  # of this package
    function: str
    line: str  # the first sentence of its help

    def load(self) -> click.Command:
        # A thread for each core, for the linear algebra of numpy, which is not used here. The programs that a command
        # starts inherit this.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        command = getattr(import_module(f"threefs_cli.{self.module}"), self.function)
        assert isinstance(command, click.Command)
        return command

    def shortened(self, limit: int) -> str:
        """`line`, cut to so many characters as click does it."""
        return click.Command(None, help=self.line).get_short_help_str(limit)


ROWS = {
    "up": Row("cluster_commands", "up", "Start a cluster on this machine, or those of its processes that do not run."),
    "down": Row("cluster_commands", "down", "Stop the cluster of this machine."),
    "ps": Row(
        "cluster_commands", "ps", "List the processes of the cluster of this machine, those of its engine included."
    ),
    "status": Row("cluster_commands", "status", "Show the managers, nodes and chains of a cluster."),
    "health": Row(
        "health_command",
        "health",
        "Say in one word how a cluster is: OK, WARN or ERR, with each reason and what to do about it.",
    ),
    "init": Row(
        "init_command",
        "init",
        "Give a new cluster its plan, once: its storage nodes, and how many copies of every chunk they keep.",
    ),
    "key": Row("key_command", "key", "Make a key for a cluster, in a new FILE that only you may read."),
    "chain": Row("chain_commands", "chain", "Chains: their members, rules and emergencies."),
    "chunk": Row("chunk_commands", "chunk", "Chunks: the pieces that a file is cut into."),
    "node": Row("node_commands", "node", "Storage nodes: one process for one disk each."),
    "rebalance": Row(
        "node_commands",
        "rebalance",
        "Move targets until all storage nodes have equally many of each table, rounded up or down, by as few moves as "
        "possible, while the cluster runs.",
    ),
    "moves": Row(
        "move_commands",
        "moves",
        "Show the targets that move between disks: bytes copied so far, and an estimate of the end.",
    ),
    "table": Row("table_commands", "table", "Chain tables: the chains that files are striped over."),
    "target": Row("target_commands", "target", "Targets: the copies of chains, each a directory on one disk."),
    "disk": Row("disk_commands", "disk", "Disks: each storage node has one."),
    "scrub": Row(
        "scrub_commands",
        "scrub",
        "The scrubber of each storage node reads all its chunks slowly, so that damage is found and repaired in time.",
    ),
    "config": Row(
        "config_commands",
        "config",
        "The configuration of a cluster: values that hold for all its processes, kept in versions.",
    ),
    "ls": Row("inspect_commands", "ls", "List directories; a file lists itself."),
    "stat": Row("inspect_commands", "stat", "Show all attributes of files, directories or links."),
    "du": Row("inspect_commands", "du", "Count the files, directories and bytes of directory trees."),
    "df": Row("inspect_commands", "df", "Show the space of the cluster's disks."),
    "put": Row("transfer_commands", "put", "Copy local files into the cluster; - is standard input."),
    "get": Row(
        "transfer_commands", "get", "Copy files of the cluster to the local disk; the destination - is standard output."
    ),
    "cat": Row("transfer_commands", "cat", "Write the content of files to standard output; with --json in base64."),
    "mkdir": Row("namespace_commands", "mkdir", "Make directories."),
    "rm": Row("namespace_commands", "rm", "Remove files and links; with -r also directories."),
    "mv": Row("namespace_commands", "mv", "Rename a file or directory in one step."),
    "ln": Row("namespace_commands", "ln", "Give a file another name."),
    "data": Row("data_commands", "data", "Make datasets for training, and copy them into other formats and back."),
    "ckpt": Row("checkpoint_commands", "ckpt", "List, show, verify, compare, remove, export and import checkpoints."),
    "mount": Row("mount_commands", "mount", "Show the cluster as a directory."),
    "umount": Row("mount_commands", "umount", "End a mount, also one whose process has died."),
    "quota": Row("quota_commands", "quota", "Limit the bytes and inodes of a directory tree, or of a user."),
    "trash": Row("trash_commands", "trash", "Keep removed files for a while, list them, and put them back."),
    "fsck": Row("fsck_command", "fsck", "Check names, links, queues and chunks of a cluster while it is in use."),
    "meta": Row(
        "meta_commands",
        "meta",
        "Copy all records of a manager or meta service to a file, and from a file to another engine.",
    ),
    "manager": Row(
        "manager_commands", "manager", "Emergencies of the manager, which keeps nodes, targets, chains and tables."
    ),
    "backup": Row(
        "backup_commands",
        "backup",
        "Copy the metadata and the manager's tables to DIRECTORY, and keep the copy at most 10 s behind.",
    ),
    "restore": Row(
        "backup_commands", "restore_command", "Make the lost stores of a cluster from the backup in DIRECTORY."
    ),
    "bench": Row(
        "bench_command",
        "bench",
        "Put load on a cluster or on any directory, with the options, job files and JSON of fio.",
    ),
    "demo": Row(
        "demo_command",
        "demo",
        "Start a cluster in a temporary directory, use it as training does, and check every byte.",
    ),
    "doctor": Row(
        "doctor_command", "doctor", "Check whether this machine is fit for a service, before it joins a cluster."
    ),
}


class CommandTable(Mapping[str, click.Command]):
    """All commands by their names. To get one imports its module."""

    def __getitem__(self, name: str) -> click.Command:
        return ROWS[name].load()

    def __contains__(self, name: object) -> bool:
        return name in ROWS

    def __iter__(self) -> Iterator[str]:
        return iter(ROWS)

    def __len__(self) -> int:
        return len(ROWS)
