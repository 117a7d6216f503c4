"""The command `delete-rows`: rows of people erased from all that the connector has written, and the proof of it."""
