"""The `delete-rows` command: erase rows by ID from everything that the connector has written, and verify the result."""
