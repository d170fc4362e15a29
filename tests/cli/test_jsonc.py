"""One value of a JSON file that people edit: added, changed and removed, with everything else unchanged."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.cli.clients import config_files
from palimpsest.cli.clients.installation import ENTRY_NAME

COMMENTED = """\
// my servers
{
  "inputs": [ /* none yet */ ],
  "servers": {
    "github": {"type": "http", "url": "https://example.org/mcp"}, // the company's
    /* added on Monday */
    "files": {
      "command": "npx",
      "args": ["-y", "server-files", "/home/me",],
    },
  },
  "theme": "dark",
}
"""

ENTRY = {"command": "palimpsest", "env": {"PALIMPSEST_USER_ID": "ünï"}}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read_value(text: str, path: tuple[str, ...]) -> Any:
    plain = re.sub(r"(\"(?:[^\"\\]|\\.)*\")|//[^\n]*|/\*.*?\*/", r"\1", text.removeprefix("\ufeff"), flags=re.DOTALL)
    value = json.loads(re.sub(r",(\s*[\]}])", r"\1", plain))
    for key in path:
        value = value.get(key) if value is not None else None
    return value


class TestJsonc:
    def test_everything_else_stays_byte_for_byte(self) -> None:
        """Guards comments, order, spacing and trailing commas: only the lines of the entry are added and removed."""
        changed = config_files.with_entry(COMMENTED, ("servers", ENTRY_NAME), ENTRY)
        assert [line for line in changed.splitlines() if line not in COMMENTED.splitlines()] == [
            '    "palimpsest": {',
            '      "command": "palimpsest",',
            '      "env": {',
            '        "PALIMPSEST_USER_ID": "ünï"',
            "      }",
            "    }",
        ]
        assert read_value(changed, ("servers", ENTRY_NAME)) == ENTRY
        assert set(COMMENTED.splitlines()) <= set(changed.splitlines())
        without = config_files.without_entry(changed, ("servers", ENTRY_NAME))
        assert read_value(without, ("servers",)) == read_value(COMMENTED, ("servers",))
        assert "// the company's" in without
        assert "/* added on Monday */" in without

    @pytest.mark.parametrize("empty", ["", "{}", "{\n}\n", '{"servers": {}}', "// nothing\n{ /* yet */ }", "\ufeff{}"])
    def test_an_empty_file_gets_the_missing_objects(self, empty: str) -> None:
        """Guards a client that has no server yet."""
        changed = config_files.with_entry(empty, ("servers", ENTRY_NAME), ENTRY)
        assert read_value(changed, ("servers",)) == {ENTRY_NAME: ENTRY}
        assert all(comment in changed for comment in ("// nothing", "/* yet */") if comment in empty)

    @pytest.mark.parametrize(
        "broken",
        ["{", '{"a" 1}', '{"a": 1 "b": 2}', "[1", '{"servers": 3}', '{"a": }', "{} {}", '{"servers": {"x": nul}}'],
    )
    def test_damaged_json_is_refused(self, broken: str) -> None:
        """Guards a file in the middle of an edit by a person: nothing is guessed."""
        with pytest.raises(ValueError, match="line 1"):
            config_files.with_entry(broken, ("servers", ENTRY_NAME), ENTRY)

    @given(document=st.dictionaries(st.text(), JSON, max_size=4), value=JSON, indent=st.sampled_from([None, 2, "\t"]))
    def test_any_document_keeps_its_other_values(self, document: dict[str, Any], value: Any, indent: Any) -> None:
        """Guards adding and removing an entry in any JSON document."""
        text = json.dumps(document, indent=indent)
        changed = config_files.with_entry(text, ("servers-x", ENTRY_NAME), value)
        assert json.loads(changed) == {**document, "servers-x": {ENTRY_NAME: value}}
        assert json.loads(config_files.without_entry(changed, ("servers-x",))) == document

    @given(
        document=st.dictionaries(st.text(), JSON, max_size=4), data=st.data(), indent=st.sampled_from([None, 2, "\t"])
    )
    def test_the_items_of_any_list_stay(self, document: dict[str, Any], data: st.DataObject, indent: Any) -> None:
        """Guards hooks, which are items of lists in lists: one is added at the end, changed, and removed."""
        items = data.draw(st.lists(JSON, max_size=4))
        text = json.dumps({**document, "items-x": items}, indent=indent)
        added = config_files.with_entry(text, ("items-x", len(items)), {"a": ["new"]})
        assert json.loads(added) == {**document, "items-x": [*items, {"a": ["new"]}]}
        changed = config_files.with_entry(added, ("items-x", len(items), "a", 0), "newer")
        assert json.loads(changed) == {**document, "items-x": [*items, {"a": ["newer"]}]}
        number = data.draw(st.integers(0, len(items)))
        left = [*items, {"a": ["newer"]}]
        del left[number]
        assert json.loads(config_files.without_entry(changed, ("items-x", number))) == {**document, "items-x": left}

    def test_line_ends_and_indentation_are_those_of_the_file(self) -> None:
        """Guards files of Windows, and files that are indented by tabs or four spaces."""
        windows = config_files.with_entry('{\r\n\t"a": {}\r\n}\r\n', ("servers", "x"), {"command": "y"})
        assert windows == (
            '{\r\n\t"a": {},\r\n\t"servers": {\r\n\t\t"x": {\r\n\t\t\t"command": "y"\r\n\t\t}\r\n\t}\r\n}\r\n'
        )
        assert '\n        "x": {}' in config_files.with_entry('{\n    "servers": {}\n}', ("servers", "x"), {})

    def test_a_key_that_is_there_twice_is_refused(self) -> None:
        """Guards against changing the one that the client does not read."""
        with pytest.raises(ValueError, match="line 2: 'servers' is here a second time"):
            config_files.with_entry('{"servers": {},\n"servers": {}}', ("servers", "x"), {})
