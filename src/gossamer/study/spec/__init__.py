"""A study as TOML text, and back.

The kinds of every section come from one table, and their keys are the fields of the dataclasses.
Every key has a default, except those that a kind cannot do without: an empty file is a study too.
"""

from gossamer._core.type_words import describe_type
from gossamer.study.kinds import KINDS
from gossamer.study.spec.build import build_dataclass, check_keys, engine, studies
from gossamer.study.spec.code import code_tables
from gossamer.study.spec.sections import SpecError, Table, nested_section
from gossamer.study.spec.settings import with_settings
from gossamer.study.spec.text import parse, read
from gossamer.study.spec.values import type_hints
from gossamer.study.spec.write import difference, digest, dumps, to_table

__all__ = [
    "KINDS",
    "SpecError",
    "Table",
    "build_dataclass",
    "check_keys",
    "code_tables",
    "describe_type",
    "difference",
    "digest",
    "dumps",
    "engine",
    "nested_section",
    "parse",
    "read",
    "studies",
    "to_table",
    "type_hints",
    "with_settings",
]
