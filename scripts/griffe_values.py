"""Extension of griffe: the signatures of `Value` classes, which Python computes from their fields."""

from __future__ import annotations

import ast
from typing import Any

import griffe

VALUE = "mooring.core.value.Value"


class ValueSignatures(griffe.Extension):
    """Give each subclass of `Value` an `__init__` with its fields as keyword arguments."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self._visit(pkg)

    def _visit(self, place: griffe.Module | griffe.Class) -> None:
        for member in list(place.members.values()):
            if member.is_alias:
                continue
            if isinstance(member, griffe.Module):
                self._visit(member)
            elif isinstance(member, griffe.Class):
                self._describe(member)

    def _describe(self, found: griffe.Class) -> None:
        ancestors = [found, *found.mro()]
        if found.path == VALUE or not any(one.path == VALUE for one in ancestors):
            return
        if "__init__" in found.members:
            return
        fields: dict[str, griffe.Attribute] = {}
        for one in reversed(ancestors):
            for name, member in one.members.items():
                plain = isinstance(member, griffe.Attribute) and member.annotation is not None
                if plain and not name.startswith("_") and "ClassVar" not in str(member.annotation):
                    fields[name] = member
        parameters = [
            griffe.Parameter(
                name,
                annotation=one.annotation,
                kind=griffe.ParameterKind.keyword_only,
                default=self._default(one),
            )
            for name, one in fields.items()
        ]
        self_ = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        made = griffe.Function("__init__", parameters=griffe.Parameters(self_, *parameters), parent=found)
        found.set_member("__init__", made)

    def _default(self, field: griffe.Attribute) -> Any:
        """The default of a field: what is assigned, or the `default=` of `setting(...)`."""
        if field.value is None:
            return None
        assigned = ast.parse(str(field.value), mode="eval").body
        if not isinstance(assigned, ast.Call) or ast.unparse(assigned.func) != "setting":
            return field.value
        return next((ast.unparse(one.value) for one in assigned.keywords if one.arg == "default"), None)
