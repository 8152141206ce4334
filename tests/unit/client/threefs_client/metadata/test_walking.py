"""Trees are walked in pages, whatever their size and shape."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from threefs_client.attributes import Entry
from threefs_client.metadata.walking import Walk

Tree = dict[str, "Tree"]  # None-like leaf: a file is an empty dict under a name that begins with "f"
PAGE = 2

names = st.sampled_from(["fa", "fb", "da", "db", "dc", "dd", "de"])
trees: st.SearchStrategy[Tree] = st.recursive(
    st.just({}), lambda below: st.dictionaries(names, below, max_size=6), max_leaves=20
)


def listed(tree: Tree, path: str, after: str) -> tuple[list[Entry], bool]:
    for part in path.split("/")[2:]:
        tree = tree[part]
    rest = sorted(name for name in tree if name > after)
    kinds = {"d": "directory", "f": "file"}
    return [Entry(name, 1, kinds[name[0]]) for name in rest[:PAGE]], len(rest) > PAGE


def steps(tree: Tree, walk: Walk) -> Iterator[tuple[str, list[Entry], list[Entry]]]:
    while (page := walk.next_page()) is not None:
        yield walk.take_page(*listed(tree, *page))


def all_of(tree: Tree, path: str) -> list[str]:
    """Names in the order of a walk whose pages have PAGE entries."""
    found: list[str] = []
    inside = sorted(tree)
    for start in range(0, len(inside), PAGE):
        page = inside[start : start + PAGE]
        directories = [name for name in page if name.startswith("d")]
        found += [f"{path}/{name}" for name in directories + [name for name in page if name.startswith("f")]]
        for name in directories:
            found += all_of(tree[name], f"{path}/{name}")
    return found


@given(trees)
def test_everything_comes_once_from_the_top_down(tree: Tree) -> None:
    found = [f"{path}/{entry.name}" for path, below, others in steps(tree, Walk("/top")) for entry in (*below, *others)]
    assert found == all_of(tree, "/top")


def test_what_is_taken_out_is_not_walked() -> None:
    tree: Tree = {"da": {"fa": {}}, "db": {"fb": {}}}
    walked = []
    for path, below, _ in steps(tree, Walk("/top")):
        walked.append(path)
        below[:] = [entry for entry in below if entry.name != "da"]
    assert walked == ["/top", "/top/db"]


def test_what_has_gone_is_left_out_unless_it_is_the_top() -> None:
    walk = Walk("/top")
    assert walk.next_page() == ("/top", "")
    assert not walk.skip_missing()
    walk.take_page([Entry("da", 1, "directory"), Entry("db", 1, "directory")], True)
    assert walk.next_page() == ("/top/da", "")
    assert walk.skip_missing()
    assert walk.next_page() == ("/top/db", "")
    walk.take_page([], False)
    assert walk.next_page() == ("/top", "db")
    walk.take_page([], True)
    assert walk.next_page() is None
