"""Shows blocking methods in the reference as what they are: methods with arguments, a result and documentation.

The reference is made from the source without running it, where `stat = blocking(AsyncFileSystem.stat)` is only a value
(`client/threefs_client/blocking/wrappers.py`).
"""

from collections.abc import Iterator
from typing import Any

import griffe

MAKERS = ("blocking", "blocking_iterator")


class BlockingMethods(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        for owner in list(_classes(pkg)):
            for name, member in list(owner.members.items()):
                if isinstance(member, griffe.Attribute) and (method := _delegated(owner, member.value)):
                    owner.set_member(name, _blocking(method, member))
                elif isinstance(member, griffe.Function):
                    _document(owner, member)


def _classes(module: griffe.Module) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Module):
            yield from _classes(member)
        elif isinstance(member, griffe.Class):
            yield member


def _delegated(owner: griffe.Class, value: Any) -> griffe.Function | None:
    """The asyncio method that a class attribute delegates to."""
    if isinstance(value, griffe.ExprCall) and str(value.function) in MAKERS:
        return _method(owner, value.arguments[0])
    return None


def _method(owner: griffe.Class, named: Any) -> griffe.Function | None:
    kind, _, name = str(named).rpartition(".")
    found = owner.modules_collection[owner.resolve(kind)]
    if found.is_alias:
        found = found.final_target
    method = found.all_members.get(name)
    if method is not None and method.is_alias:
        method = method.final_target
    return method if isinstance(method, griffe.Function) else None


def _blocking(method: griffe.Function, place: griffe.Attribute) -> griffe.Function:
    return griffe.Function(
        place.name,
        lineno=place.lineno,
        endlineno=place.endlineno,
        parameters=method.parameters,
        returns=_blocking_result(method.returns),
        docstring=method.docstring,
        parent=place.parent,
        analysis=place.analysis,
    )


def _blocking_result(returns: Any) -> Any:
    if isinstance(returns, griffe.ExprSubscript) and str(returns.left) == "AsyncIterator":
        return griffe.ExprSubscript(griffe.ExprName("Iterator"), returns.slice)
    return returns


def _document(owner: griffe.Class, function: griffe.Function) -> None:
    for decorator in function.decorators:
        value = decorator.value
        if isinstance(value, griffe.ExprCall) and str(value.function) == "documented_by":
            method = _method(owner, value.arguments[0])
            function.docstring = method.docstring if method is not None else None
