"""The rules of the tree, executed. Each test collects every breach, so that one run shows all of them."""

import ast
import graphlib
import re
import subprocess
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GENERATED = "threefs/wire/"
FUNCTION_LINES = 70
#: A longer file is a question for the review: has it one idea? If so, a sentence in LONG_FILES says which.
FILE_LINES = 500
LONG_FILES = {
    "tests/test_tidy.py": "the rules of the tree, each some lines over the same few helpers",
    "threefs/errors.py": "the one error tree, and its names",
    "tests/unit/client/threefs_checkpoint/test_manager.py": "one job: its saves, and what it goes on from",
    "tests/sim/world.py": "the machines of a simulated cluster, and how each kind of process starts on one",
}

NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "base"}

#: Names that several packages give to modules, each with the one thing that it means in all of them.
SHARED_NAMES = {
    "context": "what the operations of a package share: connections, clock, random source",
    "credentials": "the user and the groups for whom something is done",
    "delegation": "the delegation of a directory: how it is decided, and what its holder does with it",
    "filesystem": "the file system, as one kind of program sees it",
    "filesystem_protocol": "what a package needs of a file system",
    "leases": "leases: their lengths, and their records",
    "listing_cache": "entries of directories, kept while the token of the directory stands",
    "locks": "advisory locks of programs: as calls, and as the kernel asks for them",
    "main": "the entry of a program",
    "metrics": "a package's metrics for Prometheus",
    "namespace": "the tree of names: its calls, and its records",
    "node": "a program, made of its parts",
    "options": "what a user may set",
    "paths": "paths and names, and their limits",
    "reads": "batches of reads: how they are sent, and how they are answered",
    "safetensors_file": "safetensors files, as one library's tensors",
    "service": "the methods that a service answers",
    "settings": "what an administrator may set",
    "statistics": "what a meta service counts, and the call that reports it",
    "trash": "the trash: its calls, and their operations",
    "usage": "the sums that quotas keep, compared with what there is",
    "xattrs": "extended attributes",
}

#: Tests of a module lie where it does, below one of these: the second if they need real services or a mount.
MIRRORS = ("unit", "cluster")

#: What a module with behaviour of its own has at least one of.
DECISIONS = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match, ast.comprehension),
    *(ast.BoolOp, ast.Raise, ast.Assert),
)

#: Where replicas and metadata are decided, there is an assertion for every twelve lines that decide. Not in fsck, which
#: looks for what the assertions exclude.
ASSERTING = (
    *("services/threefs_manager/chains/", "services/threefs_storage/chain/", "services/threefs_storage/engine/"),
    *("services/threefs_storage/health/", "services/threefs_storage/target.py", "services/threefs_meta/"),
)
NOT_ASSERTING = ("services/threefs_meta/fsck/",)
DECIDING_LINES = 12
#: A rule or an invariant of the protocol.
RULE = re.compile(r"\b[IRP]\d+\b")

#: Unit tests use neither the simulator nor a cluster, a mount or a database of processes, also not through a harness.
NOT_FOR_UNITS = re.compile(
    r"tests\.(sim|cluster|contract|chaos|e2e|bench)\b.*|threefs_cli\.local_cluster"
    r"|tests\.harness\.(cluster|shared_cluster|client_driver|mounts|etcd|postgres)"
)

#: Inside the library a module imports only from its own row or one above it ...
LAYERS = (
    {"wire"},
    {
        "ids",
        "errors",
        "settings",
        "layout",
        "access_time",
        "routing",
        "routing_changes",
        "checksums",
        "bounded_dict",
        "receive_budget",
        "sender_limit",
        "transfer_time",
        "byte_budget",
        "paging",
        "leases",
        "inflight_ranges",
        "cluster_key",
        "human_readable",
        "configuration",
    },
    {"env"},
    {"telemetry"},
    {"background", "backoff"},
    {"rpc", "kv"},
    {"backup_source", "cluster", "health", "store_disk"},
)
#: ... and these two do not know each other.
STRANGERS = {"rpc", "kv"}

#: Modules that import each other, each pair with the reason. A type checker's imports count too.
CIRCLES = {
    (
        "threefs.rpc.server_connection",
        "threefs.rpc.server",
    ): "a connection needs most of its server, for its types alone",
}

#: Only threefs/env may touch these: a simulation has to own them.
OUTSIDE_MODULES = {"time", "random", "socket", "socketserver", "select", "selectors", "threading", "concurrent"}
OUTSIDE_CALLS = re.compile(
    r"open_connection|open_unix_connection|start_server|start_unix_server|StreamReader|StreamWriter"
    r"|create_connection|create_server|create_unix_connection|create_unix_server|create_datagram_endpoint"
    r"|sock_(recv|recv_into|recvfrom|sendall|sendto|connect|accept|sendfile)|run_in_executor|to_thread"
)

UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
#: Where packages come from is a matter of the machine, never of the project.
PACKAGE_SOURCE = re.compile(
    r"https?://[\w.-]*(pypi|pythonhosted|conda|npmjs|crates|mirror|registry|artifactory|nexus)[\w.-]*"
    r"|--(extra-)?index-url|--find-links|--trusted-host",
    re.IGNORECASE,
)
PERSONAL_PATH = re.compile(r"(?<![\w.~})>-])/(home|Users)/\w+/")


@cache
def tracked() -> tuple[str, ...]:
    """Paths of the project's files: tracked ones, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.decode().split("\0")
    return tuple(sorted({name for name in names if name and (ROOT / name).is_file()}))


@cache
def text(name: str) -> str:
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def sources(*tops: str) -> list[str]:
    """Python files that people wrote, below these folders."""
    return [
        name
        for name in tracked()
        if name.endswith(".py") and not name.startswith(GENERATED) and (not tops or name.startswith(tops))
    ]


def production() -> list[str]:
    return sources("threefs/", "services/", "client/")


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(text(name), name)


def imports(name: str) -> Iterator[tuple[str, int]]:
    """(full module name, line) of every import, wherever it stands."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}:{node.lineno}: imports are absolute"
            assert node.module
            if node.module == "threefs":
                yield from ((f"threefs.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


def module_name(name: str) -> str:
    parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts[1:] if parts[0] in ("services", "client") else parts)


def imports_of_parts(name: str, modules: Container[str]) -> Iterator[tuple[str, int]]:
    """(full module name, line) of every import. `from a import b` imports a.b if that is one of `modules`, a if not."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                part = f"{node.module}.{alias.name}"
                yield (part if part in modules else node.module), node.lineno


def imported_modules(name: str, modules: Container[str]) -> set[str]:
    """Those of `modules` that it imports."""
    return {module for module, _ in imports_of_parts(name, modules) if module in modules}


def packages(top: str) -> set[str]:
    return {name.split("/")[1] for name in sources(top)}


def layer(part: str) -> int | None:
    return next((rank for rank, parts in enumerate(LAYERS) if part in parts), None)


def report(breaches: list[str]) -> None:
    assert not breaches, "\n" + "\n".join(breaches)


def test_it_sees_the_tree() -> None:
    assert {"threefs/ids.py", "pyproject.toml", "tests/test_tidy.py"} <= set(tracked())
    assert [module for module, _ in imports("threefs/errors.py")] == ["enum", "errno", "typing"]


def test_every_part_of_the_library_has_its_layer() -> None:
    parts = {Path(name).parts[1].removesuffix(".py") for name in sources("threefs/")} - {"__init__"}
    assert parts <= set().union(*LAYERS), parts - set().union(*LAYERS)


def test_the_library_imports_only_downwards() -> None:
    breaches = []
    for name in sources("threefs/"):
        part = Path(name).parts[1].removesuffix(".py")
        rank = layer(part)
        for module, line in imports(name):
            imported = module.split(".")[1] if module.startswith("threefs.") else ""
            below = layer(imported)
            if rank is None or below is None or imported == part:
                continue
            if below > rank or {part, imported} == STRANGERS:
                breaches.append(f"{name}:{line}: {part} must not import {module}")
    report(breaches)


def test_modules_do_not_import_each_other_in_circles() -> None:
    modules = {module_name(name): name for name in production()}
    needs = {module: imported_modules(name, modules) - {module} for module, name in modules.items()}
    for module, imported in CIRCLES:
        assert imported in needs[module], f"{module} imports {imported} no longer: remove it from CIRCLES"
        needs[module].discard(imported)
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        report([" is imported by ".join(error.args[1]) + ": give one of them a protocol of what it needs"])


def test_services_and_clients_meet_only_on_the_wire() -> None:
    services, clients = packages("services/"), packages("client/")
    breaches = []
    for name in production():
        top, own = name.split("/")[:2]
        # the one door: threefs.connect, resolved when somebody asks for it
        forbidden = {"threefs": services | (clients if name != "threefs/__init__.py" else set())}
        forbidden |= {"services": (services - {own}) | clients, "client": services}
        breaches += [
            f"{name}:{line}: must not import {module}"
            for module, line in imports(name)
            if module.split(".")[0] in forbidden[top]
        ]
    report(breaches)


def test_only_env_touches_the_outside() -> None:
    breaches = []
    for name in production():
        if name.startswith("threefs/env/"):
            continue
        for module, line in imports(name):
            if module.split(".")[0] in OUTSIDE_MODULES:
                breaches.append(f"{name}:{line}: {module} belongs behind threefs/env")
        breaches += [
            f"{name}:{node.lineno}: .{node.attr} belongs behind threefs/env"
            for node in ast.walk(tree(name))
            if isinstance(node, ast.Attribute) and OUTSIDE_CALLS.fullmatch(node.attr)
        ]
    report(breaches)


#: Modules that know pickles, each with what it does with them.
PICKLES = {
    "client/threefs_torch/pickled_metadata.py": "reads metadata of torch.distributed.checkpoint: names of a list",
}


def test_nothing_is_unpickled() -> None:
    found = [(n, line, m) for n in production() for m, line in imports(n) if m in ("pickle", "marshal", "shelve")]
    unused = [f"{name} knows no pickles: remove it from PICKLES" for name in PICKLES.keys() - {n for n, _, _ in found}]
    report([f"{n}:{line}: {m}" for n, line, m in found if n not in PICKLES] + unused)


def test_functions_fit_on_a_screen() -> None:
    breaches = []
    for name in sources():
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    breaches.append(f"{name}:{node.lineno}: {node.name} has {lines} lines")
    report(breaches)


def test_long_files_have_a_reason() -> None:
    lengths = {name: text(name).count("\n") for name in sources()}
    long = {name: lines for name, lines in lengths.items() if lines > FILE_LINES}
    breaches = [
        f"{name} has {lines} lines: split it where a second idea begins, or say in LONG_FILES which one idea it has"
        for name, lines in long.items()
        if name not in LONG_FILES
    ]
    report(breaches + [f"{name} is not long: remove it from LONG_FILES" for name in LONG_FILES if name not in long])


def test_modules_say_what_they_are() -> None:
    report([name for name in sources() if NAMELESS & {part.removesuffix(".py") for part in Path(name).parts}])


def test_modules_of_one_name_mean_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for name in production():
        if not name.endswith(("__init__.py", "__main__.py")):
            found.setdefault(Path(name).stem, []).append(name)
    shared = {stem: names for stem, names in found.items() if len(names) > 1}
    report(
        [
            f"{', '.join(names)}: rename what means another thing, or say in SHARED_NAMES what the name means in all"
            for stem, names in shared.items()
            if stem not in SHARED_NAMES
        ]
        + [f"{stem} is not shared: remove it from SHARED_NAMES" for stem in SHARED_NAMES if stem not in shared]
    )


def decides(name: str) -> bool:
    """Whether a module has behaviour of its own: a branch, a loop, or an error that it handles. Records, constants and
    calls that go on to another module are tested where they are used."""
    return any(isinstance(node, DECISIONS) for node in ast.walk(tree(name)))


def deciding_lines(name: str) -> set[int]:
    """Lines that branch: if, elif, while, case, except, conditional expressions, conditions of comprehensions."""
    lines = set()
    for node in ast.walk(tree(name)):
        match node:
            case ast.If() | ast.While() | ast.IfExp():
                lines.add(node.test.lineno)
            case ast.match_case():
                lines.add(node.pattern.lineno)
            case ast.comprehension():
                lines |= {condition.lineno for condition in node.ifs}
            case ast.ExceptHandler():
                lines.add(node.lineno)
    return lines


def assertions(name: str) -> list[ast.Assert]:
    return [node for node in ast.walk(tree(name)) if isinstance(node, ast.Assert)]


def asserting() -> list[str]:
    return [name for name in sources(*ASSERTING) if not name.startswith(NOT_ASSERTING)]


def test_decisions_about_replicas_and_metadata_assert_their_invariants() -> None:
    counted: dict[Path, tuple[int, int]] = {}
    for name in asserting():
        decided, asserted = counted.get(Path(name).parent, (0, 0))
        counted[Path(name).parent] = decided + len(deciding_lines(name)), asserted + len(assertions(name))
    assert len(counted) > 10
    report(
        [
            f"{folder} has {asserted} assertions and {decided} lines that decide: one for {DECIDING_LINES} is needed"
            for folder, (decided, asserted) in counted.items()
            if asserted * DECIDING_LINES < decided
        ]
    )


def test_assertions_about_replicas_and_metadata_are_sentences() -> None:
    """With the rules of the protocol that they come from."""
    rules = set(re.findall(r"^(?:\| |\*\*)([IRP]\d+)(?: \||\. )", text("docs/protocol.md"), re.MULTILINE))
    assert {"I1", "R1", "P1"} <= rules
    breaches = []
    for name in asserting():
        for node in assertions(name):
            said = ast.unparse(node.msg) if node.msg is not None else ""
            if " " not in said:
                breaches.append(f"{name}:{node.lineno}: say what is always true")
            breaches += [
                f"{name}:{node.lineno}: docs/protocol.md has no {rule}"
                for rule in RULE.findall(said)
                if rule not in rules
            ]
    report(breaches)


def test_every_module_with_behaviour_has_its_test_file() -> None:
    present = set(tracked())
    breaches = []
    for name in production():
        path = Path(name)
        if path.name in ("__init__.py", "__main__.py") or not decides(name):
            continue
        mirrors = [str(Path("tests") / kind / path.parent / f"test_{path.name}") for kind in MIRRORS]
        if not present.intersection(mirrors):
            breaches.append(f"{name} has no {mirrors[0]}")
    report(breaches)


def test_every_mirrored_test_has_its_module() -> None:
    present = set(tracked())
    breaches = []
    for name in sources(*(f"tests/{kind}/{tree}/" for kind in MIRRORS for tree in ("threefs", "services", "client"))):
        path = Path(name)
        if path.name.startswith("test_"):
            module = Path(*path.parent.parts[2:]) / path.name.removeprefix("test_")
            package = module.with_suffix("") / "__init__.py"
            if not {str(module), str(package)} & present:
                breaches.append(f"{name} tests {module}, which is not there")
    report(breaches)


def test_unit_tests_need_no_cluster_and_no_simulator() -> None:
    modules = {module_name(name): name for name in sources("tests/")}
    needs = {module: set(imports_of_parts(name, modules)) for module, name in modules.items()}
    breaches = []
    for test in (module for module in modules if module.startswith("tests.unit.")):
        reached = [test]
        for module in reached:
            for imported, line in needs[module]:
                if NOT_FOR_UNITS.fullmatch(imported):
                    breaches.append(
                        f"{modules[module]}:{line}: {imported} is not for unit tests, as {modules[test]} is"
                    )
                elif imported in modules and imported not in reached:
                    reached.append(imported)
    report(breaches)


def test_no_test_has_a_clock_or_a_seeded_random_of_its_own() -> None:
    """SteppedClock is moved by hand, LoopClock and SimClock show the time of a loop; SeededRandom draws by a seed."""
    breaches = []
    for name in sources("tests/", "benchmarks/"):
        if name.startswith("tests/harness/"):
            continue
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                bases = {ast.unparse(base) for base in node.bases}
                if "monotonic" in methods or "SteppedClock" in bases:
                    breaches.append(f"{name}:{node.lineno}: {node.name}: use a clock of tests/harness")
                if {"uniform", "below", "token"} <= methods and "Random(" in ast.unparse(node):
                    breaches.append(f"{name}:{node.lineno}: {node.name}: use SeededRandom of tests/harness")
    report(breaches)


def test_packages_are_packages_and_tests_are_not() -> None:
    breaches = [name for name in sources("tests/") if name.endswith("__init__.py")]
    for name in production():
        folder = Path(name).parent
        if not (ROOT / folder / "__init__.py").exists():
            breaches.append(f"{folder} has no __init__.py")
    breaches += [f"{top}/__init__.py" for top in ("services", "client") if (ROOT / top / "__init__.py").exists()]
    report(breaches)


#: A path in a page: of a source or test file, whole or its end in backticks; of a folder, whole in backticks.
PAGE_PATH = re.compile(
    r"(?<![\w/.-])(?:services|client|threefs|threefs_\w+|tests|docs|deploy|benchmarks|examples|proto)/[\w./-]*\.(?:py|proto|pml)\b"
    r"|(?<=`)[\w./-]+\.(?:py|proto|pml)(?=`)"
    r"|(?<=`)(?:services|client|tests|proto|deploy|examples)/[\w/-]+(?=`)"
)
#: A row of a table of constants: name, file.
PAGE_CONSTANT = re.compile(r"^\| `(\w+)` \| `([\w/]+\.py)` \|")


def pages() -> list[str]:
    """Pages that say how things are now. The change log says how they were."""
    return [name for name in tracked() if name.endswith(".md") and name != "CHANGELOG.md"]


def test_pages_name_files_that_exist() -> None:
    files = [Path(name) for name in tracked()]
    ends = {"/".join(file.parts[at:]) for file in files for at in range(len(file.parts))}
    ends |= {str(folder) for file in files for folder in file.parents}
    report(
        [
            f"{name}:{number}: {path} does not exist"
            for name in pages()
            for number, line in enumerate(text(name).splitlines(), 1)
            for path in PAGE_PATH.findall(line)
            if path.rstrip("/") not in ends
        ]
    )


def test_pages_name_constants_that_exist() -> None:
    rows = [(name, line) for name in pages() for line in text(name).splitlines()]
    found = [(name, *match.groups()) for name, line in rows if (match := PAGE_CONSTANT.match(line))]
    assert found, "docs/protocol.md has a table of constants"
    report(
        [
            f"{name}: {file} has no {constant}"
            for name, constant, file in found
            if not re.search(rf"^\s*{constant}(: .+)? = ", text(file), re.MULTILINE)
        ]
    )


#: Examples of pages for users. CONTRIBUTING has some for people who change threefs.
PAGE_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_FOR_USERS = ("CONTRIBUTING.md", "docs/adr/")


def public_names(name: str) -> set[str] | None:
    """`__all__` of a file; None without one."""
    for node in tree(name).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


def used_names(code: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name) of what an example imports from a module, or uses as an attribute of one."""
    for node in ast.walk(code):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr


def test_examples_use_public_names() -> None:
    """A name of ours in an example stands in the `__all__` of its module, and a module has one."""
    public = {module_name(name): public_names(name) for name in production()}
    breaches = []
    for page in (page for page in pages() if not page.startswith(NOT_FOR_USERS)):
        for module, name in used_names(ast.parse("\n".join(PAGE_PYTHON.findall(text(page))))):
            if f"{module}.{name}" in public:
                if public[f"{module}.{name}"] is None:
                    breaches.append(f"{page}: {module}.{name} has no __all__")
            elif module in public and name not in (public[module] or ()):
                breaches.append(f"{page}: {name} is not in __all__ of {module}")
    report(breaches)


def test_the_version_is_the_same_everywhere() -> None:
    found = {
        "pyproject.toml": re.search(r'^version = "(.+)"$', text("pyproject.toml"), re.MULTILINE),
        "threefs/__init__.py": re.search(r'^__version__ = "(.+)"$', text("threefs/__init__.py"), re.MULTILINE),
        "CHANGELOG.md": re.search(r"^## ([\d.]+) \(\d{4}-\d\d-\d\d\)$", text("CHANGELOG.md"), re.MULTILINE),
    }
    versions = {name: match and match[1] for name, match in found.items()}
    assert len(set(versions.values())) == 1, f"the last release has one version: {versions}"


def test_nothing_is_marked_unfinished() -> None:
    report(_lines_with(UNFINISHED))


def test_modules_under_test_are_not_patched() -> None:
    report([f"{n}:{line}: {m}" for n in sources() for m, line in imports(n) if m.startswith("unittest")])


def test_what_runs_in_programs_of_users_does_not_log_to_their_output() -> None:
    """An unconfigured structlog prints to standard output, also what is no warning."""
    services = ("client/threefs_fuse/", "client/threefs_mount/", "threefs/rpc/grpc_binding.py")
    parts = sources("client/", "threefs/env/", "threefs/kv/", "threefs/rpc/")
    of_users = [name for name in parts if not name.startswith(services)]
    assert len(of_users) > 100
    report([f"{n}:{line}: use LibraryLogger" for n in of_users for m, line in imports(n) if m == "structlog"])


def test_no_path_of_one_machine() -> None:
    report(_lines_with(PERSONAL_PATH))
    here = [str(ROOT), str(Path.home())]
    own = re.compile("|".join(rf"(?<![\w.-]){re.escape(path)}/" for path in here if len(path) > 1))
    report(_lines_with(own))


def test_no_package_source_is_written_down() -> None:
    report([line for line in _lines_with(PACKAGE_SOURCE) if not line.startswith("tests/test_tidy.py")])


def test_constraints_are_plain_versions() -> None:
    lines = [line for line in text("constraints.txt").splitlines() if line and not line.startswith("#")]
    assert lines
    report([line for line in lines if not re.fullmatch(r"[\w-]+==[\w.]+", line)])


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for name in tracked():
        if name.startswith(GENERATED) or name == "LICENSE":
            continue
        lines = enumerate(text(name).splitlines(), 1)
        found += [f"{name}:{number}: {line.strip()}" for number, line in lines if pattern.search(line)]
    return found
