"""Names and text of others in the SQL that is passed to Spark."""

from __future__ import annotations

# Group ids are in some of this SQL, and whoever may join a group chooses its id. Spark would replace `${...}` in it by
# settings, and with the second setting would not understand `literal`.
SQL_TEXT_CONF = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
}


def identifier(name: object) -> str:
    """Return `name` as an identifier."""
    escaped = str(name).replace("`", "``")
    return f"`{escaped}`"


def literal(text: str) -> str:
    """Return `text` as a string literal of Spark SQL, for a session with `SQL_TEXT_CONF`."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
