"""The `delete-rows` command: erase rows by ID from everything that the connector wrote, and verify the result."""
