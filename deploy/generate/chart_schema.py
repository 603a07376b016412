"""The schema of the chart's values: the part about `config` is made from the keys of the job's configuration.

So `helm install` refuses a misspelt key, as the job does. Values are not checked: each may be a `${file:...}`.
"""

import json
from pathlib import Path
from typing import Any

from streaming_app.config.settings import Settings
from streaming_app.section import Section

NAME = "deploy/charts/streams-groups/values.schema.json"
_OF_JOB_ONLY = {"bootstrap_server": {"type": "string"}, "cluster": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"}}


def page(root: Path) -> str:
    """Return the text of the schema, with the keys of `config` as they are now."""
    schema = json.loads((root / NAME).read_text("utf-8"))
    schema["properties"]["config"] = {
        "description": "The job's configuration file; the job checks its values.",
        "required": ["bootstrap_server"],
        **_keys(Settings),
    }
    schema["properties"]["config"]["properties"] |= _OF_JOB_ONLY
    return json.dumps(schema, indent=2) + "\n"


def _keys(section: type[Section]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        inner = field.annotation
        is_section = isinstance(inner, type) and issubclass(inner, Section)
        found[field.serialization_alias or name] = _keys(inner) if is_section else {}
    return {"type": "object", "additionalProperties": False, "properties": found}
