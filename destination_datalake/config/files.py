"""JSON files on the command line: the configuration, the configured catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from destination_datalake.errors import ConfigError


def read_object(path: str, what: str) -> dict[str, Any]:
    """Return the JSON object in the file at `path`; `what` names it in messages.

    Raises ConfigError. Its messages never quote the content, which may hold secrets.
    """
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"The {what} file {path} cannot be read: {error.strerror}.") from error
    except json.JSONDecodeError as error:
        # Only its `msg`, never its `doc`, which is the content.
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"The {what} file {path} is not valid JSON: {where}: {error.msg}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"The {what} file {path} is not valid JSON: byte {error.start + 1} is not UTF-8.") from None
    except RecursionError:
        raise too_deep(path, what) from None
    except ValueError:
        raise ConfigError(f"The {what} file {path} holds a number of more digits than anything here takes.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"The {what} file {path} does not hold a JSON object.")
    return content


def too_deep(path: str, what: str) -> ConfigError:
    """Return the error for a file that is nested more deeply than Python's parsers follow."""
    return ConfigError(
        f"The {what} file {path} is nested too deeply: hundreds of objects or arrays one inside the other."
    )
