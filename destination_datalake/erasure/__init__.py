"""The command `delete-rows`: erase rows by ID from everything the connector has written, and verify the result."""
